"""The command line, `torchdali COMMAND`: one module per command, and the parts that commands share."""
