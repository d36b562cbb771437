#!/usr/bin/env bash
# release.sh image|notes|check|publish FOLDER: what follows `make dist` in a release, for the packages in
# FOLDER. .github/workflows/release.yml calls it.
#   image    builds the image of FOLDER/Containerfile with docker (or ENGINE), runs it, and saves it
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
image=rockery-$version-x86_64-image.tar.gz
notes=release-notes.md

# add FILE: its checksum, beside those of `make dist`.
add() {
  grep -v "  $1\$" SHA256SUMS >sums || true
  sha256sum "$1" >>sums
  mv sums SHA256SUMS
}

make_image() {
  "$engine" build -t "rockery:$version" -f Containerfile .
  # The image's own command lists its devices.
  "$engine" run --rm "rockery:$version" | grep PORT_ACTIVE || die "programs have no device in the image"
  "$engine" save "rockery:$version" | gzip -n9 >"$image"
  add "$image"
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
  local name listed unlisted
  for name in "rockery_${version}_amd64.deb" "rockery-default_${version}_all.deb" get.sh Containerfile \
    "rockery-$version-x86_64-linux.tar.gz" "rockery-$version.cdx.json"; do
    grep -q "  $name\$" SHA256SUMS || die "SHA256SUMS has no $name: the packages are of another version"
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
    call "$engine" load --input "$image"
    local user=${REGISTRY_USER:-${GITHUB_ACTOR:-OWNER}}
    call "$engine" login --username "$user" --password-stdin "${address%%/*}" <<<"${REGISTRY_TOKEN:-}"
    call "$engine" tag "rockery:$version" "$address"
    call "$engine" push "$address"
  fi
}

case $1 in
  image) make_image ;;
  notes) make_notes ;;
  check) check ;;
  publish) publish ;;
  *) die "$1 is not known: image, notes, check or publish" ;;
esac
