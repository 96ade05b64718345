"""Adds the programs to the wheel, and names their platform."""
import os
import pathlib

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Programs(BuildHookInterface):
    def initialize(self, version, build_data):
        scripts = {str(f): f.name for f in sorted(pathlib.Path(self.root, "scripts").iterdir())}
        build_data.update(shared_scripts=scripts, tag=os.environ["WHEEL_TAG"], pure_python=False)
