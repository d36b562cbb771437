//! Names of interfaces, in ranges and lists.

/// `swp1-4,swp6` as single names, and `swp1-4,6`, in which a number takes the letters of the name before it;
/// at most 1,024.
pub(super) fn expanded(names: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut letters = "";
    for part in names.split(',') {
        let (head, to) = match part.rsplit_once('-') {
            Some((head, to)) => (head, to.parse::<u32>().ok()),
            None => (part, None),
        };
        let base = head.trim_end_matches(|letter: char| letter.is_ascii_digit());
        let from = head[base.len()..].parse::<u32>().ok();
        let base = if base.is_empty() { letters } else { base };
        match (from, to) {
            (Some(from), Some(to)) => {
                found.extend((from..=to).take(1024).map(|port| format!("{base}{port}")));
                letters = base;
            }
            (Some(from), None) if !part.contains('-') => {
                let is_number = from.to_string() == part;
                found.push(if is_number {
                    format!("{base}{part}")
                } else {
                    part.to_owned()
                });
                letters = base;
            }
            _ => found.push(part.to_owned()),
        }
    }
    found.truncate(1024);
    found
}

#[cfg(test)]
mod tests {
    use super::expanded;

    #[test]
    fn names_are_ranges_lists_and_numbers_behind_a_name() {
        for (names, expected) in [
            ("swp1", "swp1"),
            ("swp1-3,swp6", "swp1 swp2 swp3 swp6"),
            ("swp1-2,5,8-9,eth0", "swp1 swp2 swp5 swp8 swp9 eth0"),
            ("swp1s0-1,3", "swp1s0 swp1s1 swp1s3"),
            ("swp01,bond-a,bond-b1", "swp01 bond-a bond-b1"),
            ("swp1-a", "swp1-a"),
        ] {
            assert_eq!(expanded(names).join(" "), expected, "{names}");
        }
    }
}
