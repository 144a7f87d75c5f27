"""The pages' scripts as they are sent, compared with their sources token by token."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

from exporter.packages import find_node
from exporter.runtimes.web_folder import web_folder
from exporter.server.files import Pages

# Node's own parser, which it does not offer to programs.
_COMPARE = """
const { tokenizer } = require('internal/deps/acorn/acorn/dist/acorn');
const options = { ecmaVersion: 'latest', sourceType: 'module', allowHashBang: true };
const tokens = (text) => [...tokenizer(text, options)].map(
  ({ type, start, end }) => [type.label, text.slice(start, end)]);
const scripts = JSON.parse(require('fs').readFileSync(0, 'utf-8'));
const read = Object.entries(scripts).map(([name, [source, sent]]) => {
  const [before, after] = [tokens(source), tokens(sent)];
  return [name, before.length, JSON.stringify(before) === JSON.stringify(after)];
});
console.log(JSON.stringify(read));
"""


def tokens_kept(scripts: Mapping[str, tuple[str, str]]) -> dict[str, tuple[int, bool]]:
    """Count the tokens of each source, and tell whether what is sent has the same."""
    node = find_node()
    assert node is not None, "Node 20 or later is needed, see CONTRIBUTING.md"
    command = [str(node), "--expose-internals", "--eval", _COMPARE]
    asked = json.dumps(scripts)
    done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return {name: (count, same) for name, count, same in json.loads(done.stdout)}


def sent_by(folder: Path) -> dict[str, tuple[str, str]]:
    """Each script below ``folder`` as it is written, and as it is sent."""
    found = {}
    for file in Pages(folder).files:
        if file.name.endswith(".js"):
            with file.open() as stream:
                found[file.name] = (file.path.read_text(encoding="utf-8"), stream.read().decode())
    return found


def test_no_script_of_the_pages_loses_anything_but_comments() -> None:
    scripts = sent_by(web_folder())
    read = tokens_kept(scripts)
    assert [name for name, (_, same) in read.items() if not same] == []
    assert all(count > 0 for count, _ in read.values())
    assert {"sw.js", "measure/tensors.js"} <= scripts.keys()
    sources, sent = (sum(len(pair[side]) for pair in scripts.values()) for side in (0, 1))
    assert sent < 0.9 * sources


def test_a_text_over_lines_that_looks_like_a_comment_would_be_noticed(tmp_path: Path) -> None:
    (tmp_path / "text.js").write_text("const text = `one\n// two\nthree`;\n")
    (tmp_path / "comment.js").write_text("// one\nconst text = 'https://a/**/b' + /\\/\\//;\n")
    read = tokens_kept(sent_by(tmp_path))
    assert {name: same for name, (_, same) in read.items()} == {
        "text.js": False,
        "comment.js": True,
    }
