//! Faults that programs meet on purpose: `rockery run --fault`.

use std::ffi::OsString;

use faults::Rules;

use crate::Error;
use crate::args::Settings;

/// The variables that pass rules and journal to the libraries.
///
/// # Errors
/// When the journal cannot be written.
pub(crate) fn variables(settings: &Settings) -> Result<Vec<(&'static str, OsString)>, Error> {
    let mut variables = Vec::new();
    if settings.fault.is_empty() {
        return Ok(variables);
    }
    let mut all = Rules::default();
    settings.fault.iter().for_each(|rules| all.append(rules));
    variables.push((host::settings::FAULTS, all.to_string().into()));
    if let Some(path) = &settings.fault_journal {
        host::capture::create_file(path).map_err(Error::file(path))?;
        // The program may work in another folder.
        let path = path.canonicalize().map_err(Error::file(path))?;
        variables.push((host::settings::FAULT_JOURNAL, path.into()));
    }
    Ok(variables)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault_rules::rules;

    #[test]
    fn rules_of_several_options_keep_their_seeds() {
        let settings = Settings {
            fault: vec![
                rules("seed 7; reg_mr: fail ENOMEM probability 1/2").unwrap(),
                rules("post_send: fail EIO").unwrap(),
            ],
            ..Settings::default()
        };
        let expected =
            "seed 0; reg_mr: fail ENOMEM probability 1/2 seed 7; post_send: fail EIO seed 0";
        let variables = variables(&settings).unwrap();
        assert_eq!(variables, [(host::settings::FAULTS, expected.into())]);
    }
}
