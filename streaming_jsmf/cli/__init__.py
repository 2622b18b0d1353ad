"""The command line: each verb parses, calls one public function, and prints.

``stages`` has the verbs that make something, ``queries`` those that answer with a table, and other modules one verb.
``verb`` has the command class and the options that they share. ``observation`` shows the progress of long commands
(``log_json`` writes it for programs), ``outcome`` how they end.
"""
