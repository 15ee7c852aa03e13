"""The package, the README and the suite itself."""
