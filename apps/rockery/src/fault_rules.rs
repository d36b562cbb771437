//! Values of `--fault`: rules, or a file of them.

use std::path::Path;

use faults::Rules;

/// The rules of one option: those of a file, or of the text itself.
pub(crate) fn rules(text: &str) -> Result<Rules, String> {
    let path = Path::new(text);
    let is_file = path.extension().is_some_and(|end| end == "toml") || path.is_file();
    if !is_file {
        return text
            .parse()
            .map_err(|error: faults::RuleError| error.to_string());
    }
    let found = ::sim::input::read_text(path).map_err(|error| format!("{text}: {error}"))?;
    faults::read_file(text, &found).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_text_or_in_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules.toml");
        let text = path.display().to_string();
        std::fs::write(&path, "[[fault]]\non = \"reg_mr\"\ndo = \"fail ENOMEM\"\n").unwrap();
        assert_eq!(rules(&text), rules("reg_mr: fail ENOMEM"));
        std::fs::write(&path, "[[fault]]\non = \"reg_mr\"\ndo = \"fail ENOMEN\"\n").unwrap();
        let error = rules(&text).unwrap_err();
        assert_eq!(
            error,
            format!("{text}:3: do: `ENOMEN` is no error number: did you mean ENOMEM?")
        );
        assert!(
            rules("missing.toml")
                .unwrap_err()
                .starts_with("missing.toml: ")
        );
    }
}
