# shellcheck shell=sh
# Finds a Python and keeps .venv in step with pyproject.toml.
#
# Sourced by scripts/test and scripts/demo, which have changed to the root of the
# repository. Offers `say`, `fail`, `ensure_venv GROUP` and the variable VENV.

VENV="$PWD/.venv"
OLDEST=3.11

say() {
    printf '== %s\n' "$*"
}

fail() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 2
}

# Sets `python` to the first interpreter that is new enough and can make a
# virtual environment. $PYTHON, if set, is the only candidate.
find_python() {
    old='' bare=''
    for python in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        command -v "$python" >/dev/null 2>&1 || continue
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])') ||
            continue
        if ! "$python" -c "import sys; sys.exit(sys.version_info < (3, ${OLDEST#3.}))"; then
            old=$version
        elif ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
            bare=$version
        else
            return 0
        fi
    done
    [ -z "$bare" ] ||
        fail "Python $bare has no venv module: install it (Debian, Ubuntu: apt install python$bare-venv) and try again."
    [ -z "$old" ] ||
        fail "raddle needs Python $OLDEST or newer, but the newest found is $old: install a newer one (https://www.python.org/downloads/)."
    fail "no Python found as ${PYTHON:-python3}: install Python $OLDEST or newer (https://www.python.org/downloads/), or name one in the variable PYTHON."
}

pip() {
    "$VENV/bin/python" -m pip --disable-pip-version-check -q -q "$@"
}

# Makes .venv if it is missing, broken or was made for another folder, and
# installs raddle (editable) with the dependency group $1. What is there already is
# left alone until pyproject.toml changes.
ensure_venv() {
    home="$VENV/raddle-home"
    if ! [ -f "$home" ] || [ "$(cat "$home")" != "$PWD" ] ||
        ! "$VENV/bin/python" -c '' 2>/dev/null; then
        find_python
        say "creating .venv with Python $version"
        "$python" -m venv --clear "$VENV" || fail "$python could not create $VENV."
        # Dependency groups need pip 25.1.
        pip install --upgrade 'pip>=25.1' || fail "pip could not be upgraded: is there a network?"
        printf '%s\n' "$PWD" >"$home"
    fi
    stamp="$VENV/raddle-installed-$1"
    sum=$(cksum <pyproject.toml)
    if ! [ -f "$stamp" ] || [ "$(cat "$stamp")" != "$sum" ]; then
        say "installing raddle and its $1 dependencies into .venv"
        pip install --editable . --group "$1" || fail "the installation into $VENV failed; pip says why above."
        printf '%s\n' "$sum" >"$stamp"
    fi
}
