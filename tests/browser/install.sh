#!/bin/sh
# Chromium for `make test-browser`: what is there is used, else Debian's is installed, else it is said what is missing.
set -e
for program in chromium chromium-browser google-chrome google-chrome-stable; do
  command -v "$program" >/dev/null && exit 0
done
packages="chromium fonts-dejavu-core fonts-wqy-zenhei fonts-noto-color-emoji" # fonts for the screenshots
if ! command -v apt-get >/dev/null; then
  echo "no chromium on the path and no apt-get to install it; install chromium and run this again" >&2
  exit 1
fi
as_root=""
if [ "$(id -u)" != 0 ]; then
  if ! sudo -n true 2>/dev/null; then
    echo "no chromium on the path; as root, run: apt-get install $packages" >&2
    exit 1
  fi
  as_root="sudo -n"
fi
echo "installing chromium" >&2
$as_root apt-get update -q >/dev/null
DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -q --no-install-recommends $packages >/dev/null
