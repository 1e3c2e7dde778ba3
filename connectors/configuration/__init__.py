"""Configuration: LOOMLOG_* settings and YAML files in, plain frozen values out. Start at `load.py`.

    settings, configuration         load.load(os.environ, working_directory=Path.cwd(), paths=...)
    principals and their tokens     principals.build_token_table(...), principals.find_principal(...)
    providers that can be called    providers.build_providers(...), usable_provider_ids(...), run_key_provider_ids(...)
    what a run is pinned to         resolve.resolve_agent(...)

Nothing here reads the environment or a file at import, and pydantic is not visible outside. The package exports
nothing: a command that reads only settings does not pay for the models of the YAML files, which take 0.3 s to build.
"""
