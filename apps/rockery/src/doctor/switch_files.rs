//! Files of switches: which of them are of one switch. SONiC keeps a switch in several files
//! (`config_db.json`, `qos.json`, `buffers.json`, and the tables of its platform).

use std::path::Path;

use vendors::sonic::Part;

/// The files of one switch, each with its path and text.
pub(super) struct SwitchFiles<'a> {
    /// The name that is written before them.
    pub(super) name: Option<&'a str>,
    pub(super) files: Vec<(String, String)>,
    folder: Option<&'a Path>,
    /// The tables of all files; none where they are no parts of one configuration.
    tables: Option<Part>,
}

impl<'a> SwitchFiles<'a> {
    fn new(name: Option<&'a str>, path: &'a Path, text: String) -> Self {
        let file = path.display().to_string();
        Self {
            name,
            tables: Part::of(&file, &text),
            files: vec![(file, text)],
            folder: path.parent(),
        }
    }

    /// Whether a further file is a part of the same switch: one with the same name, or without names one of
    /// the same folder with other tables.
    fn takes(&self, other: &Self) -> Option<Part> {
        let (own, others) = (self.tables?, other.tables?);
        if self.name != other.name || (own.is_whole() && others.is_whole()) {
            return None;
        }
        match self.name {
            Some(_) => Some(own.with(others).unwrap_or(own)),
            None => own.with(others).filter(|_| self.folder == other.folder),
        }
    }
}

/// Puts the files of each switch together, in the order in which they are given. The files are names, paths
/// and texts.
pub(super) fn by_switch<'a>(
    files: impl IntoIterator<Item = (Option<&'a str>, &'a Path, String)>,
) -> Vec<SwitchFiles<'a>> {
    let mut found: Vec<SwitchFiles<'a>> = Vec::new();
    for (name, path, text) in files {
        let mut next = SwitchFiles::new(name, path, text);
        let place = found.iter().position(|own| own.takes(&next).is_some());
        // A table of a platform that came first has no switch yet.
        match place.and_then(|place| Some((place, found[place].takes(&next)?))) {
            Some((place, tables)) => {
                found[place].tables = Some(tables);
                found[place].files.append(&mut next.files);
            }
            None => found.push(next),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::by_switch;
    use std::path::Path;

    const PORTS: &str = r#"{"PORT": {"Ethernet0": {}}}"#;
    const MAPS: &str = r#"{"PORT_QOS_MAP": {"Ethernet0": {}}}"#;
    const POOLS: &str = r#"{"BUFFER_POOL": {"p": {}}}"#;
    const WHOLE: &str = r#"{"PORT": {"Ethernet0": {}}, "PORT_QOS_MAP": {"Ethernet0": {}}}"#;
    const EOS: &str = "qos profile A\n";

    /// The numbers of the files of each switch.
    fn grouped(files: &[(Option<&str>, &str, &str)]) -> Vec<Vec<usize>> {
        let own = files
            .iter()
            .map(|(name, path, text)| (*name, Path::new(*path), (*text).to_owned()));
        let number = |file: &str| files.iter().position(|(_, path, _)| *path == file);
        by_switch(own)
            .iter()
            .map(|switch| {
                let files = switch.files.iter();
                files.filter_map(|(file, _)| number(file)).collect()
            })
            .collect()
    }

    #[test]
    fn parts_of_a_folder_are_of_one_switch() {
        let parts = [
            (None, "qos.json", MAPS),
            (None, "buffers.json", POOLS),
            (None, "port_config.ini", "Ethernet0 1,2 a 0"),
            (None, "config_db.json", PORTS),
        ];
        assert_eq!(grouped(&parts), [vec![0, 1, 2, 3]]);
        let whole = [(None, "pg_profile_lookup.ini", ""), (None, "a", WHOLE)];
        assert_eq!(grouped(&whole), [vec![0, 1]]);
    }

    #[test]
    fn files_with_the_same_tables_are_of_two_switches() {
        let two = [
            (None, "a/config_db.json", PORTS),
            (None, "b/config_db.json", PORTS),
            (None, "b/qos.json", MAPS),
            (None, "a/qos.json", MAPS),
        ];
        assert_eq!(grouped(&two), [vec![0, 3], vec![1, 2]]);
        let one_folder = [(None, "a.json", WHOLE), (None, "b.json", WHOLE)];
        assert_eq!(grouped(&one_folder), [vec![0], vec![1]]);
        let others = [(None, "a", EOS), (None, "b", EOS), (None, "c", MAPS)];
        assert_eq!(grouped(&others), [vec![0], vec![1], vec![2]]);
    }

    #[test]
    fn a_name_says_which_switch_a_file_is_of() {
        let named = [
            (Some("leaf1"), "1.json", PORTS),
            (Some("leaf2"), "2.json", PORTS),
            (Some("leaf2"), "3.json", MAPS),
            (Some("leaf1"), "4.json", MAPS),
            (None, "5.json", POOLS),
        ];
        assert_eq!(grouped(&named), [vec![0, 3], vec![1, 2], vec![4]]);
    }
}
