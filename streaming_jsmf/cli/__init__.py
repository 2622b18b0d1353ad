"""The command line: each verb parses, calls one public function, and prints.

``verb`` has the commands and the options that they share. ``observation`` shows the progress of long commands
(``progress`` for people, ``log_json`` for programs), ``outcome`` how they end.
"""
