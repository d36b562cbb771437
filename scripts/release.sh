#!/usr/bin/env bash
# release.sh image|notes|check|publish FOLDER: what follows `make dist` in a release, for the packages in
# FOLDER. .github/workflows/release.yml calls it.
#   image    builds the images of FOLDER/Containerfile with docker (or ENGINE), one for each processor that
#            there are packages for, runs their command, and saves them. One of another processor than this
#            machine's needs an emulator for its programs (the package qemu-user-static)
#   notes    writes the changelog's section of this version
#   check    compares names, tag and checksums
#   publish  checks, and publishes what there is a token for: RELEASE_TOKEN the release at GitHub, PYPI_TOKEN
#            the wheel, REGISTRY_TOKEN (with REGISTRY_IMAGE and REGISTRY_USER) the image. DRY_RUN=1 prints the
#            commands.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
die() { echo "release: $*" >&2; exit 1; }
[[ $# == 2 ]] || die "call it as 'release.sh image|notes|check|publish FOLDER'"
cd "$2" || die "make the packages first: make dist"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")
engine=${ENGINE:-docker}
notes=release-notes.md

# The processors, as the kernel and as Debian names them.
architectures=(x86_64:amd64 aarch64:arm64)
image_of() { echo "rockery-$version-$1-image.tar.gz"; }

# add FILE: its checksum, beside those of `make dist`.
add() {
  grep -v "  $1\$" SHA256SUMS >sums || true
  sha256sum "$1" >>sums
  mv sums SHA256SUMS
}

make_image() {
  local pair processor debian tag image
  for pair in "${architectures[@]}"; do
    processor=${pair%:*} debian=${pair#*:}
    tag=rockery:$version-$debian image=$(image_of "$processor")
    "$engine" build --platform "linux/$debian" -t "$tag" -f Containerfile .
    if [[ $processor == "$(uname -m)" ]]; then
      # The image's own command lists its devices.
      "$engine" run --rm "$tag" | grep PORT_ACTIVE || die "programs have no device in the image"
    else
      # An emulator of programs alone has no device over UDP.
      "$engine" run --rm --platform "linux/$debian" --entrypoint rockery "$tag" --version |
        grep -xF "rockery $version" || die "the command does not run in the image for $processor"
    fi
    "$engine" save "$tag" | gzip -n9 >"$image"
    add "$image"
  done
}

make_notes() {
  awk -v version="$version" '
    /^## / { inside = $2 == version || $2 == "Unreleased"; if (inside && seen++) exit; next }
    inside' "$root/CHANGELOG.md" >"$notes"
  grep -q . "$notes" || die "CHANGELOG.md has no section $version"
  add "$notes"
}

check() {
  sha256sum --check --strict --quiet SHA256SUMS ||
    die "files are not those of SHA256SUMS: nothing is published"
  local pair name names listed unlisted
  names=(get.sh Containerfile "rockery-default_${version}_all.deb")
  for pair in "${architectures[@]}"; do
    names+=("rockery_${version}_${pair#*:}.deb" "rockery-$version-${pair%:*}-linux.tar.gz"
      "rockery-$version-${pair%:*}-linux.cdx.json")
  done
  for name in "${names[@]}"; do
    grep -q "  $name\$" SHA256SUMS ||
      die "SHA256SUMS has no $name: the packages are of another version, or for one processor alone"
  done
  # The statement of provenance is about the checksums, and comes after them.
  listed=$(sed 's/^[^ ]*  //' SHA256SUMS)
  unlisted=$(comm -23 <(ls | sort) <(printf '%s\n' "$listed" SHA256SUMS provenance.sigstore.jsonl | sort))
  [[ -z $unlisted ]] || die "SHA256SUMS does not have" $unlisted
  [[ ${GITHUB_REF_TYPE:-} != tag || $GITHUB_REF_NAME == "v$version" ]] ||
    die "the tag is $GITHUB_REF_NAME, and Cargo.toml has $version"
}

# call COMMAND…: or what it would be.
call() { if [[ ${DRY_RUN:-} ]]; then echo "would call: $*"; else "$@"; fi; }

# token NAME WHAT: whether the owner added it.
token() {
  [[ ${DRY_RUN:-} || ${!1:-} ]] || { echo "not published: $2, since there is no $1"; return 1; }
}

publish() {
  check
  local tag=v$version address=${REGISTRY_IMAGE:-ghcr.io/${GITHUB_REPOSITORY:-OWNER/rockery}}:$version
  local pair pushed=()
  if token RELEASE_TOKEN "the release at GitHub"; then
    GH_TOKEN=${RELEASE_TOKEN:-} call gh release create "$tag" --repo "${GITHUB_REPOSITORY:-OWNER/rockery}" \
      --verify-tag --title "rockery $version" --notes-file "$notes" -- *
  fi
  if token PYPI_TOKEN "the wheel"; then
    TWINE_USERNAME=__token__ TWINE_PASSWORD=${PYPI_TOKEN:-} call pipx run twine upload --non-interactive \
      rockery-*.whl
  fi
  if token REGISTRY_TOKEN "the image"; then
    address=${address,,}
    local user=${REGISTRY_USER:-${GITHUB_ACTOR:-OWNER}}
    call "$engine" login --username "$user" --password-stdin "${address%%/*}" <<<"${REGISTRY_TOKEN:-}"
    for pair in "${architectures[@]}"; do
      call "$engine" load --input "$(image_of "${pair%:*}")"
      call "$engine" tag "rockery:$version-${pair#*:}" "$address-${pair#*:}"
      call "$engine" push "$address-${pair#*:}"
      pushed+=("$address-${pair#*:}")
    done
    # One name, of which each machine gets its own image.
    call "$engine" manifest create "$address" "${pushed[@]}"
    call "$engine" manifest push "$address"
  fi
}

case $1 in
  image) make_image ;;
  notes) make_notes ;;
  check) check ;;
  publish) publish ;;
  *) die "$1 is not known: image, notes, check or publish" ;;
esac
