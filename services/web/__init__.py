"""The web page of an installation: static modules without a build step, which the api serves under /ui."""
