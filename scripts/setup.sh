# Set-up shared by ./demo and ./test; sourced by both, after `cd` to the project's root. Every step says what it does and
# how long it took, and is skipped when its work is done. Nothing here ever waits for an answer.
#
#   set_up          packages, virtual environment, configuration and build of the preset `release`
#   step NAME COMMAND...   runs a command as one timed part; its outcome goes into the summary and into `failures`
#   summary         prints every part with its time and outcome

set -uo pipefail
exec </dev/null
export DEBIAN_FRONTEND=noninteractive PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1

packages=(build-essential cmake ninja-build ccache pkg-config python3-venv
  libcli11-dev nlohmann-json3-dev libspdlog-dev libfmt-dev libpcre2-dev libutf8proc-dev libtomlplusplus-dev zlib1g-dev
  libgtest-dev libgmock-dev librapidcheck-dev libbenchmark-dev)
summary_lines=()
failures=0

step() { # NAME COMMAND...
  local name=$1 began=$SECONDS outcome=ok code=0
  shift
  printf '\n== %s\n' "$name"
  "$@" || code=$?
  if ((code != 0)); then
    outcome="FAILED (exit $code)"
    failures=$((failures + 1))
  fi
  printf -- '-- %s: %s, %d s\n' "$name" "$outcome" $((SECONDS - began))
  summary_lines+=("$(printf '%-44s %6d s  %s' "$name" $((SECONDS - began)) "$outcome")")
  return $code
}

summary() {
  printf '\n== summary\n'
  printf '%s\n' "${summary_lines[@]}"
  printf '%-44s %6d s  %s\n' total "$SECONDS" "$([[ $failures == 0 ]] && echo ok || echo "$failures part(s) FAILED")"
}

# Number of compile jobs: no more than the cores of this process or of its container, and about 2 GiB of memory for each.
build_jobs() {
  local jobs memory limit period
  jobs=$(nproc)
  if read -r limit period 2>/dev/null </sys/fs/cgroup/cpu.max && [[ $limit != max ]]; then
    limit=$(((limit + period - 1) / period))
    ((limit < jobs)) && jobs=$limit
  fi
  memory=$(awk '/^MemAvailable/ {print int($2 / 1024 / 1024)}' /proc/meminfo)
  if read -r limit 2>/dev/null </sys/fs/cgroup/memory.max && [[ $limit != max ]]; then
    limit=$((limit / 1024 ** 3))
    ((limit < memory)) && memory=$limit
  fi
  ((memory / 2 < jobs)) && jobs=$((memory / 2))
  echo $((jobs < 1 ? 1 : jobs))
}

python_usable() { # PYTHON: new enough for the pinned packages and able to make a virtual environment
  command -v "$1" >/dev/null && "$1" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
  local candidate
  for candidate in python3 /usr/bin/python3 python3.13 python3.12 python3.11; do
    python_usable "$candidate" && command -v "$candidate" && return
  done
  return 1
}

install_packages() { # PACKAGE...
  local package missing=() as_root=()
  for package in "$@"; do
    [[ $package == python3-venv ]] && find_python >/dev/null && continue
    [[ $(dpkg-query -W -f='${Status}' "$package" 2>/dev/null) == 'install ok installed' ]] || missing+=("$package")
  done
  if ((${#missing[@]} == 0)); then
    echo "all ${#} packages are there"
    return
  fi
  if ((EUID != 0)); then
    if ! sudo -n true 2>/dev/null; then
      echo "These packages are missing, and neither root nor sudo without a password is at hand. Please run:" >&2
      echo "  sudo apt-get install -y ${missing[*]}" >&2
      return 1
    fi
    as_root=(sudo -n env DEBIAN_FRONTEND=noninteractive)
  fi
  echo "installing ${missing[*]}"
  "${as_root[@]}" apt-get update -q >/dev/null || return 1
  "${as_root[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null
}

make_environment() {
  local stamp=.venv/.requirements.sha256 wanted python
  wanted=$(sha256sum requirements.txt | cut -d' ' -f1)
  if [[ -x .venv/bin/python && $(cat "$stamp" 2>/dev/null) == "$wanted" ]] && .venv/bin/python -c '' 2>/dev/null; then
    echo ".venv is up to date"
    return
  fi
  if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    python=$(find_python) || {
      echo "No Python of version 3.11 or newer with venv and ensurepip was found." >&2
      return 1
    }
    echo "making .venv with $("$python" --version) ($python)"
    rm -rf .venv && "$python" -m venv .venv || return 1
  fi
  echo "installing requirements.txt (torch with its CUDA libraries is about 3 GB)"
  .venv/bin/python -m pip install --quiet -r requirements.txt && echo "$wanted" >"$stamp"
}

build() { # PRESET
  local began=$SECONDS
  if [[ ! -f build/$1/build.ninja ]]; then
    cmake --preset "$1" || return 1
  fi
  nice ninja -C "build/$1" -j "$(build_jobs)" && echo "built in $((SECONDS - began)) s with $(build_jobs) jobs"
}

set_up() {
  step "Debian packages" install_packages "${packages[@]}" || return 1
  step "Python environment (.venv)" make_environment || return 1
  step "build (preset release)" build release
}
