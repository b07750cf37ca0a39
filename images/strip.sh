#!/bin/sh
# Remove from an image what its program never uses: installers, build tools, package managers,
# documentation, and whatever the build machine configured for itself.
set -eu

venv=/opt/modelcache
standard=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

# The bundle may hold authorities of the machine that built: make it anew from the distribution's.
update-ca-certificates --fresh >/dev/null 2>&1

rm -rf "$venv"/bin/pip* "$venv"/bin/wheel* "$venv"/bin/*ctivate* "$packages"/pip "$packages"/pip-* \
  "$packages"/setuptools* "$packages"/pkg_resources "$packages"/_distutils_hack "$packages"/distutils-precedence.pth
cd "$standard"
rm -rf ensurepip idlelib lib2to3 pydoc_data test tkinter turtledemo config-*

# Installers of the base, in Debian's layout and in that of the official image.
for library in /usr/lib/python3/dist-packages "$standard"/site-packages; do
  rm -rf "$library"/pip "$library"/pip-* "$library"/setuptools* "$library"/wheel* \
    "$library"/pkg_resources "$library"/_distutils_hack "$library"/distutils-precedence.pth
done
for root in /usr /usr/local; do
  rm -rf "$root"/bin/pip* "$root"/bin/idle* "$root"/bin/pydoc* "$root"/bin/2to3* "$root"/include \
    "$root"/share/doc "$root"/share/man "$root"/share/info "$root"/share/locale \
    "$root"/share/python-wheels "$root"/share/lintian "$root"/share/perl*
done
rm -rf /usr/bin/perl* /usr/lib/*/perl* /usr/share/bash-completion /usr/share/debconf \
  /usr/bin/apt* /usr/bin/dpkg* /usr/lib/apt /etc/apt /var/lib/apt /var/cache/* /var/log/* \
  /var/lib/dpkg/info /usr/lib/*/gconv

# The client knows every service there is; ours are the store and those that give out its keys.
if [ -d "$packages/botocore/data" ]; then
  cd "$packages/botocore/data"
  for service in */; do
    case $service in s3/ | sts/ | sso/ | sso-oidc/ | signin/) ;; *) rm -rf "$service" ;; esac
  done
  rm -rf "$packages"/boto3/examples
  for service in "$packages"/boto3/data/*/; do
    case $service in */s3/) ;; *) rm -rf "$service" ;; esac
  done
fi

# Of the hub we ask lists and addresses; its transfer protocol would be the larger part of its client.
rm -rf "$packages"/hf_xet "$packages"/hf_xet-*

# Our client is the official dynamic one: typed calls and objects, 120 MB of them, are imported on
# first use, and there is none.
if [ -d "$packages/kubernetes" ]; then
  for part in client aio/client; do
    find "$packages/kubernetes/$part/api" "$packages/kubernetes/$part/models" \
      -type f ! -name __init__.py -delete
  done
fi

# What was only needed to build, and settings of the machine that built.
rm -rf /etc/pip.conf /root/.cache /root/.config /wheel /requirements.txt /tmp/* /var/tmp/*

# A read-only root keeps no caches: they come with the image, the same from the same input.
cd /
find "$standard" "$venv" -type d -name __pycache__ -prune -exec rm -rf {} +
"$venv/bin/python" -m compileall -q -j 0 --invalidation-mode unchecked-hash "$standard" "$venv/lib" ||
  echo "some files of the standard library are not for this version" >&2
rm -f /strip.sh
