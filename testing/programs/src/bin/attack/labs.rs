//! Attacks by the root of a lab's host, who owns the host's interface and the memory that it shares with the
//! lab.

use programs::{live, workspace};

use crate::Outcome;
use crate::place::Effort;

/// Runs a lab of four hosts. `sender0` attacks by a program of `probe` again and again, while `sender1`
/// transfers data to `server` as many times as the shell's `$TIMES`.
fn attacked(effort: Effort, program: &str, arguments: &str, count: &str) -> Outcome {
    let file = workspace().join(format!("testing/programs/probe/{program}"));
    let times = if effort == Effort::Short { 2 } else { 8 };
    let script = format!(
        r#"
        $R lab up -d $F/lab.toml || exit 1
        $R lab exec sender0 -- python3 $D/{program} {arguments} &
        ATTACK=$!
        for time in $(seq {times}); do
            $R lab exec server -- ib_write_bw -n 200 -s 65536 >/dev/null &
            until_it_listens 4853 || exit 1
            $R lab exec sender1 -- ib_write_bw -n 200 -s 65536 server >/dev/null && echo "transferred"
        done
        wait $ATTACK || exit 1
        $R lab exec sender0 -- ping -c 1 -W 5 server >/dev/null && echo "sender0 reaches server"
        down"#
    );
    let seconds = 120 + u64::from(effort.seconds()) * 4;
    let ended = live::try_script(&script, seconds, &[&file]).map_err(|error| error.to_string())?;
    let said = ended.output;
    let transferred = said.matches("transferred").count();
    let figure = said
        .lines()
        .find_map(|line| line.strip_prefix(count))
        .unwrap_or_default();
    let is_whole = transferred == times && !figure.is_empty();
    if is_whole
        && said.contains("sender0 reaches server")
        && said.contains("left: 0 processes, 0 sockets")
    {
        return Ok(format!(
            "{}: {transferred} transfers of another host ended well",
            figure.trim()
        ));
    }
    Err(said)
}

/// Random bytes in the rings and control words of devices that the attacker attaches.
pub(crate) fn rings(effort: Effort) -> Outcome {
    attacked(
        effort,
        "scribbler.py",
        &format!("34 {}", effort.seconds()),
        "scribbled over",
    )
}

/// Frames that are too short for their type, of every length up to 64 bytes.
pub(crate) fn frames(effort: Effort) -> Outcome {
    attacked(
        effort,
        "odd_frames.py",
        &effort.seconds().to_string(),
        "sent",
    )
}
