//! The value of `ROCKERY_LOG`: levels by target.

use tracing::level_filters::LevelFilter;

/// The target of the C calls.
pub const CALL: &str = "call";
/// The target of this crate's events.
pub(crate) const HOST: &str = "host";

/// Levels by target: `debug`, or `warn,rnic=debug,call=trace`. The last directive for a target counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Filter {
    usual: LevelFilter,
    targets: Vec<(String, LevelFilter)>,
}

impl Default for Filter {
    fn default() -> Self {
        Self {
            usual: LevelFilter::WARN,
            targets: Vec::new(),
        }
    }
}

impl Filter {
    /// The known targets.
    const TARGETS: &[&str] = &[CALL, "rnic", "cm", HOST];

    /// Parses directives; `None` where one of them is no level, or names no target.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut filter = Self::default();
        for directive in text
            .split(',')
            .map(str::trim)
            .filter(|directive| !directive.is_empty())
        {
            match directive.split_once('=') {
                None => filter.usual = level(directive)?,
                Some((target, name)) if Self::TARGETS.contains(&target) => {
                    filter.targets.insert(0, (target.to_owned(), level(name)?));
                }
                Some(_) => return None,
            }
        }
        Some(filter)
    }

    pub(crate) fn level_of(&self, target: &str) -> LevelFilter {
        self.targets
            .iter()
            .find(|(of, _)| of == target)
            .map_or(self.usual, |(_, level)| *level)
    }

    pub(crate) fn most(&self) -> LevelFilter {
        self.targets
            .iter()
            .map(|(_, level)| *level)
            .fold(self.usual, LevelFilter::max)
    }
}

fn level(name: &str) -> Option<LevelFilter> {
    // The type also parses numbers and the empty string.
    name.parse()
        .ok()
        .filter(|_| !name.is_empty() && name.chars().all(char::is_alphabetic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_set_levels_by_target() {
        let filter = Filter::parse("info, rnic=trace,call=off").expect("valid directives");
        assert_eq!(filter.level_of("rnic"), LevelFilter::TRACE);
        assert_eq!(filter.level_of("call"), LevelFilter::OFF);
        assert_eq!(filter.level_of("cm"), LevelFilter::INFO);
        assert_eq!(filter.most(), LevelFilter::TRACE);
        assert_eq!(Filter::parse(""), Some(Filter::default()));
        assert_eq!(Filter::default().most(), LevelFilter::WARN);
    }

    #[test]
    fn wrong_directives_are_refused() {
        for wrong in [
            "loud",
            "rnic",
            "rnic=",
            "nvme=debug",
            "3",
            "debug;rnic=trace",
        ] {
            assert_eq!(Filter::parse(wrong), None, "{wrong}");
        }
    }
}
