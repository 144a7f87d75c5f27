# Sourced by scripts/quickstart and scripts/test: a virtual environment of our own, made once.
#
#   prepare_environment EXTRAS   installs this package with EXTRAS ("" or "[dev]") into .venv
#
# pip's own configuration and environment variables are honoured throughout.

MINIMUM_DISK_MB=2500

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

find_python() {
  local candidate
  for candidate in "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11; do
    [ -n "$candidate" ] || continue
    if command -v "$candidate" >/dev/null 2>&1 &&
      "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  fail "Python 3.11 or newer is needed and was not found. Install it (Debian, Ubuntu:" \
    "apt install python3 python3-venv; macOS: brew install python), or set PYTHON to it."
}

make_venv() {
  local python available
  python=$(find_python) || exit 1
  available=$(df -Pm . | awk 'NR == 2 { print $4 }')
  [ "$available" -ge "$MINIMUM_DISK_MB" ] ||
    fail "$available MB of disk are free here; setting up needs about $MINIMUM_DISK_MB MB" \
      "(PyTorch's build for the CPU; one with CUDA needs three times as much)."
  "$python" -c 'import ensurepip, venv' 2>/dev/null ||
    fail "$python cannot make virtual environments. On Debian and Ubuntu: apt install python3-venv"
  echo "Making a virtual environment in .venv …" >&2
  "$python" -m venv .venv || {
    rm -rf .venv
    fail "$python -m venv .venv did not work; its message is above"
  }
}

prepare_environment() {
  local extras=$1 wanted stamp=.venv/installed$1
  [ -x .venv/bin/python ] || make_venv
  wanted=$(cat pyproject.toml constraints.txt)
  if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
    echo "Installing packages (some minutes the first time) …" >&2
    .venv/bin/python -m pip install --quiet --disable-pip-version-check \
      --constraint constraints.txt --editable ".$extras" ||
      fail "pip could not install the packages; its message is above"
    printf '%s\n' "$wanted" >"$stamp"
  fi
}
