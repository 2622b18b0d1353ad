"""The command line: each verb parses, calls one public function, and prints.

``stages`` has the verbs that make something, and the modules named after a verb those that show it. ``verb`` has the
command class and the options that they share. ``observation`` shows the progress of long commands (``log_json`` writes
it for programs), ``outcome`` how they end.
"""
