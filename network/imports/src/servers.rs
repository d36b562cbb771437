//! The network of a job whose files say nothing of one.

use crate::job::Group;
use crate::text::FabricText;
use fabric::Rate;

/// Servers with as many adapters as processors, one rank each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Servers {
    /// Ranks of a server. With one, all are at one switch; with more, those of one place in their servers
    /// are.
    pub ranks: u32,
    /// The rate of each adapter.
    pub rate: Rate,
}

/// Ranks of a server at most: adapters of one machine.
pub const RANKS_PER_SERVER_MAX: u32 = 1024;

impl Servers {
    /// The host of a rank.
    pub(crate) fn host(self, rank: usize) -> String {
        match self.ranks as usize {
            0 | 1 => format!("h{rank}"),
            ranks => format!("n{}r{}", rank / ranks, rank % ranks),
        }
    }

    /// Writes the topology, which stands above all tables.
    pub(crate) fn write(self, text: &mut FabricText, ranks: usize) {
        let rate = units::Bandwidth(self.rate);
        let shape = match self.ranks {
            0 | 1 => format!("kind = \"star\", hosts = {ranks}"),
            rails => {
                let servers = ranks.div_ceil(rails as usize);
                format!("kind = \"rail\", servers = {servers}, rails = {rails}, spines = {rails}")
            }
        };
        text.comment("The file says nothing of the network: this one is assumed.");
        text.field("topology", format_args!("{{ {shape}, rate = \"{rate}\" }}"));
    }

    /// The group of ranks.
    pub(crate) fn group(self, ranks: &[usize]) -> Group {
        Group {
            hosts: ranks.iter().map(|rank| self.host(*rank)).collect(),
            per_server: side_by_side(ranks, self.ranks),
            local: None,
        }
    }
}

/// How many ranks of one server follow each other in a group, if all servers of the group have as many; else
/// 1.
pub(crate) fn side_by_side(ranks: &[usize], per_server: u32) -> u32 {
    let server = |rank: &usize| rank / per_server.max(1) as usize;
    let mut runs = ranks
        .chunk_by(|one, next| server(one) == server(next))
        .map(<[usize]>::len);
    let first = runs.next().unwrap_or(1);
    match runs.all(|run| run == first) {
        true => first as u32,
        false => 1,
    }
}
