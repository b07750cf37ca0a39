"""`bundle`: an archive for whoever helps, without secrets."""
