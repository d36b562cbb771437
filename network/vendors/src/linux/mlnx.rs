//! Linux hosts with NVIDIA's `mlnx_qos` (Mellanox/mlnx-tools).

use std::fmt::Write;

use super::dialect::{Reading, fit_host, port_name, write_host};
use crate::intent::{Fit, Intent, Schedule, Trust};
use crate::shell::{ShellCommand, commands};
use crate::text::{ReadError, number};

pub(crate) fn fit(intent: &mut Intent, fit: &mut Fit) {
    fit.host(intent);
    match intent.trust {
        Trust::None => {
            fit.note(
                "an adapter trusts PCP or DSCP: it trusts PCP, which untagged packets do not have",
            );
            intent.trust = Trust::Pcp;
        }
        Trust::Both => {
            fit.note("an adapter trusts PCP or DSCP: it trusts DSCP");
            intent.trust = Trust::Dscp;
        }
        Trust::Pcp | Trust::Dscp => {}
    }
    fit.percents(intent);
    if let Some(host) = &mut intent.host
        && host.willing
    {
        fit.note("the operating system sets DCB, and not the switch");
        host.willing = false;
    }
    fit_host(intent, fit);
}

pub(crate) fn write(intent: &Intent) -> String {
    let mut text = String::from(
        "# Install as /usr/local/sbin/rockery-roce.sh, which rockery-roce.service runs.\n",
    );
    let port = port_name(intent);
    let trust = if intent.trust.dscp() { "dscp" } else { "pcp" };
    let _ = writeln!(
        text,
        "mlnx_qos -i {port} --dcbx os\nmlnx_qos -i {port} --trust {trust}"
    );
    if intent.trust.dscp() {
        // The default priority of an adapter is the DSCP divided by eight.
        for value in (0..64_u8).filter(|value| intent.dscp[usize::from(*value)] != value / 8) {
            let class = intent.dscp[usize::from(value)];
            let _ = writeln!(text, "mlnx_qos -i {port} --dscp2prio set,{value},{class}");
        }
    }
    let list = |one: &dyn Fn(usize) -> String| (0..8).map(one).collect::<Vec<_>>().join(",");
    let pfc = list(&|class| u8::from(intent.lossless(class as u8)).to_string());
    let tsa = list(&|class| match intent.queues[class].schedule {
        Schedule::Strict => "strict".to_owned(),
        Schedule::Weighted(_) | Schedule::Background(_) => "ets".to_owned(),
    });
    let bandwidth = list(&|class| match intent.queues[class].schedule {
        Schedule::Strict => "0".to_owned(),
        Schedule::Weighted(percent) | Schedule::Background(percent) => percent.to_string(),
    });
    let _ = writeln!(
        text,
        "mlnx_qos -i {port} --pfc {pfc}\n\
         mlnx_qos -i {port} --prio_tc 0,1,2,3,4,5,6,7 --tsa {tsa} --tcbw {bandwidth}"
    );
    write_host(&mut text, intent);
    text
}

pub(crate) fn read(file: &str, text: &str) -> Result<Vec<Intent>, ReadError> {
    let mut reading = Reading::new();
    (0_u8..)
        .zip(&mut reading.intent.dscp)
        .for_each(|(value, class)| *class = value / 8);
    for command in commands(file, text)? {
        if reading.shared(file, &command)? {
            continue;
        }
        let parts = command.parts();
        let ["mlnx_qos", rest @ ..] = parts.as_slice() else {
            return Err(command.wrong(file, "this command is not known"));
        };
        for option in rest.chunks(2) {
            let [name, value] = option else { continue };
            apply(file, &command, name, value, &mut reading)?;
        }
    }
    reading.intent.pfc_obey = reading.intent.pfc_send;
    Ok(vec![reading.finish()])
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
        "--cable_len" | "-r" | "--ratelimit" | "--prio2buffer" | "--buffer_size" => {}
        _ => return Err(command.wrong(file, "this option is not known")),
    }
    Ok(())
}
