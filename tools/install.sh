#!/bin/sh
# Installs the workspace into .venv, bringing uv into .uv where there is none. Run from the checkout.
set -eu

say() { printf '%s\n' "$*" >&2; }

"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || {
    say "Python 3.11 or newer is needed; $PYTHON is $("$PYTHON" --version 2>&1 || echo missing)."
    say "Name another one: make PYTHON=python3.12 ..."
    exit 1
}

# A company's own certificate authority is known to the system, and neither to uv nor to an old pip.
export UV_SYSTEM_CERTS="${UV_SYSTEM_CERTS:-true}"
export UV_NATIVE_TLS="$UV_SYSTEM_CERTS" # its name in an older uv, which may be on the PATH
for bundle in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt; do
    if [ -z "${PIP_CERT:-}" ] && [ -r "$bundle" ]; then export PIP_CERT="$bundle"; fi
done

uv=$(command -v uv || true)
if [ -z "$uv" ]; then
    uv=.uv/bin/uv
    if [ ! -x "$uv" ]; then
        say "Bringing uv into .uv ..."
        rm -rf .uv
        "$PYTHON" -m venv .uv || {
            say "$PYTHON cannot make a virtual environment: install its venv package (Debian: python3-venv)."
            exit 1
        }
        .uv/bin/python -m pip install --quiet --no-cache-dir --require-hashes -r tools/bootstrap.lock
    fi
fi

say "Installing the locked packages into .venv (a download of 300 MB the first time; 1.2 GB on disk) ..."
[ -x .venv/bin/python ] || "$uv" venv --quiet --python "$PYTHON" .venv
"$uv" pip sync --quiet --python .venv/bin/python --require-hashes requirements.lock
set --
for folder in libs/* services/* router conformance cli; do
    [ -f "$folder/pyproject.toml" ] && set -- "$@" -e "./$folder"
done
"$uv" pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation "$@"
