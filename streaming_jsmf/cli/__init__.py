"""The command line: each verb parses, calls one public function, and prints.

Start with ``commands``; ``options`` has what verbs share, ``observation`` who listens to a long job (``progress`` for
people, ``log_json`` for programs), ``outcome`` how errors become a line and an exit code.
"""
