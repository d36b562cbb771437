//! Texts of `mlnx_qos`, read as intents.

use super::write::GIGABIT;
use crate::highest_rate::HighestRate;
use crate::intent::{Intent, Trust};
use crate::linux::read::Reading;
use crate::outcome::Outcomes;
use crate::shell::{ShellCommand, commands};
use crate::text::{ReadError, number};

/// The largest rate of a traffic class in Gb/s.
const GBPS_MAX: u32 = 10_000;

pub(crate) fn read(file: &str, text: &str) -> Result<(Vec<Intent>, Outcomes), ReadError> {
    let mut reading = Reading::new();
    (0_u8..)
        .zip(&mut reading.intent.dscp)
        .for_each(|(value, class)| *class = value / 8);
    let (commands, mut outcomes) = commands(file, text)?;
    for command in commands {
        outcomes.take(command.line, one(file, &command, &mut reading));
    }
    reading.intent.pfc_obey = reading.intent.pfc_send;
    Ok((vec![reading.finish()], outcomes))
}

fn one(file: &str, command: &ShellCommand, reading: &mut Reading) -> Result<(), ReadError> {
    if reading.shared(file, command)? {
        return Ok(());
    }
    let parts = command.parts();
    let ["mlnx_qos", rest @ ..] = parts.as_slice() else {
        return Err(command.wrong(file, "this command is not known"));
    };
    for option in rest.chunks(2) {
        match option {
            [name, value] => apply(file, command, name, value, reading)?,
            _ => return Err(command.wrong(file, "the last option has no value")),
        }
    }
    Ok(())
}

fn apply(
    file: &str,
    command: &ShellCommand,
    name: &str,
    value: &str,
    reading: &mut Reading,
) -> Result<(), ReadError> {
    let eight = || -> Result<[&str; 8], ReadError> {
        let parts: Vec<&str> = value.split(',').collect();
        parts
            .try_into()
            .map_err(|_| command.wrong(file, "eight values are needed, one for each priority"))
    };
    match name {
        "-i" | "--interface" => reading.port(file, command, value)?,
        "-d" | "--dcbx" if matches!(value, "os" | "fw") => {}
        "--trust" => {
            reading.intent.trust = match value {
                "dscp" => Trust::Dscp,
                "pcp" => Trust::Pcp,
                _ => return Err(command.wrong(file, "trust is dscp or pcp")),
            };
        }
        "--dscp2prio" => match value.split(',').collect::<Vec<_>>().as_slice() {
            ["set", dscp, priority] => {
                let dscp = number(file, command.line, dscp, 0..=63)? as usize;
                reading.intent.dscp[dscp] = number(file, command.line, priority, 0..=7)? as u8;
            }
            _ => return Err(command.wrong(file, "only set,DSCP,PRIORITY is supported")),
        },
        "-f" | "--pfc" => {
            for (class, word) in eight()?.into_iter().enumerate() {
                let on = number(file, command.line, word, 0..=1)? as u8;
                reading.intent.pfc_send = reading.intent.pfc_send & !(1 << class) | on << class;
            }
        }
        "-p" | "--prio_tc" => {
            if eight()? != ["0", "1", "2", "3", "4", "5", "6", "7"] {
                return Err(command.wrong(
                    file,
                    "a priority in a traffic class of another number is not supported",
                ));
            }
        }
        "-s" | "--tsa" => {
            for (class, word) in eight()?.into_iter().enumerate() {
                let strict = match word {
                    "strict" | "vendor" => 1,
                    "ets" => 0,
                    _ => return Err(command.wrong(file, "an algorithm is strict, ets or vendor")),
                };
                reading.strict = reading.strict & !(1 << class) | strict << class;
            }
        }
        "-t" | "--tcbw" => {
            for (class, word) in eight()?.into_iter().enumerate() {
                reading.percents[class] = number(file, command.line, word, 0..=100)? as u8;
            }
        }
        "-r" | "--ratelimit" => {
            for (class, word) in eight()?.into_iter().enumerate() {
                let gbps = u64::from(number(file, command.line, word, 0..=GBPS_MAX)?);
                let rate = HighestRate::in_units(gbps, GIGABIT).filter(|_| gbps > 0);
                reading.rates[class] = rate;
            }
        }
        "--cable_len" | "--prio2buffer" | "--buffer_size" => {}
        _ => return Err(command.wrong(file, "this option is not known")),
    }
    Ok(())
}
