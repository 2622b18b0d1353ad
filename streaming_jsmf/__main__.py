"""``python -m streaming_jsmf``: the command line."""

from streaming_jsmf.cli.main import main

if __name__ == "__main__":
    main()
