"""A conversation with a model in this process. It needs no server, none of a server's packages, and no terminal."""
