"""`headstart export`: a folder that runs the drafter in vLLM, SGLang or llama.cpp, with what was measured of it.

`write.export` checks and measures; the files of the folder are pure functions of a `Manifest` and a `Deployment`.
"""
