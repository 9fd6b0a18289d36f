"""Names the images and the actions of workflows by digest and by commit: what their tags stand for now.

It asks registries with `docker buildx imagetools` and GitHub with `git ls-remote`, and changes the files in place.
Look at the diff before you commit it: a new digest under an old tag is a new build, by whoever owns the image.
"""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IMAGE = re.compile(r"(?P<tag>(?:FROM |image: )[\w./-]+:[\w.-]+)@sha256:[0-9a-f]{64}")
ACTION = re.compile(r"(?P<repository>uses: [\w-]+/[\w-]+)@[0-9a-f]{40} # (?P<tag>v[\w.]+)")


def asked(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def image(found: re.Match[str]) -> str:
    """The image under the digest that its registry gives for the tag."""
    name = found["tag"].split(" ")[1]
    digest = asked("docker", "buildx", "imagetools", "inspect", name, "--format", "{{.Manifest.Digest}}")
    return f"{found['tag']}@{digest}"


def action(found: re.Match[str]) -> str:
    """The action at the commit that GitHub gives for the tag; `^{}` is the commit of a tag that was signed."""
    address = "https://github.com/" + found["repository"].split(" ")[1]
    tag = f"refs/tags/{found['tag']}"
    lines = asked("git", "ls-remote", address, tag, f"{tag}^{{}}").splitlines()
    commits = {name: commit for commit, name in map(str.split, lines)}
    return f"{found['repository']}@{commits.get(f'{tag}^{{}}', commits.get(tag))} # {found['tag']}"


def main(root: Path = ROOT) -> None:
    for file in [
        root / "Dockerfile",
        root / "docker-compose.yml",
        *(root / ".github/workflows").glob("*.yml"),
    ]:
        before = file.read_text()
        after = ACTION.sub(action, IMAGE.sub(image, before))
        if after != before:
            file.write_text(after)
            print(f"{file.relative_to(root)}: changed")


if __name__ == "__main__":
    main()
