# other-apt.sh, sourced: packages of another release or architecture, by an apt with a configuration of its
# own. They are verified by the archive's keyring, and nothing of this machine's packages changes.

# mirror ORIGIN: where this machine has the packages of Debian or Ubuntu from; Debian's own address where it
# has none of Debian, as a machine with Ubuntu.
mirror() {
  local found
  found=$(apt-get indextargets --format '$(REPO_URI)' "Origin: $1" 'Created-By: Packages' | sed -n 1p)
  [[ $found || $1 != Debian ]] || found=http://deb.debian.org/debian
  echo "$found"
}

# configure APT URI SUITE COMPONENTS KEYRING ARCHITECTURE: writes the configuration, in the folder APT, of an
# apt that has this archive alone, with nothing installed. APT_CONFIG names it to apt.
configure() {
  local apt=$1
  rm -rf "$apt"
  mkdir -p "$apt"/{lists/partial,cache/archives/partial,etc/preferences.d,etc/apt.conf.d}
  : >"$apt/status"
  echo "deb [signed-by=$5] $2 $3 $4" >"$apt/sources.list"
  cat >"$apt/apt.conf" <<END
Dir::Etc "$apt/etc";
Dir::Etc::SourceList "$apt/sources.list";
Dir::Etc::SourceParts "-";
Dir::State "$apt";
Dir::State::Lists "$apt/lists";
Dir::State::Status "$apt/status";
Dir::Cache "$apt/cache";
APT::Architecture "$6";
APT::Architectures { "$6"; };
APT::Get::AllowUnauthenticated "false";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
// A mirror may lag behind: signatures are verified all the same.
Acquire::Check-Valid-Until "false";
Acquire::Languages "none";
Acquire::Retries "2";
END
  export APT_CONFIG=$apt/apt.conf
}
