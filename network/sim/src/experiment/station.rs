//! Addresses that packets bear in captures.

use super::Experiment;
use crate::world::Forgery;

/// Sender or receiver of a captured frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Station {
    /// Number of the host whose IP address it bears.
    pub host: u32,
    /// MAC address that the frame bears.
    pub mac: [u8; 6],
    /// VLAN that its embedded switch has it in; 0 is untagged.
    pub vlan: u16,
}

impl Experiment {
    /// Source and destination of a packet of a flow whose source address is this host's.
    pub fn stations(&self, flow: u32, from: u32) -> [Station; 2] {
        let Some(flow) = self.scenario.flows.get(flow as usize) else {
            return [self.station(from), self.station(from)];
        };
        match flow.forgery {
            // The frame is the sender's own; only the address within is another's.
            Forgery::Gid(pretended) if pretended == from => [
                Station {
                    host: from,
                    ..self.station(flow.from)
                },
                self.station(flow.to),
            ],
            Forgery::Mac(pretended) if flow.from == from => {
                let mac = self.station(pretended).mac;
                [
                    Station {
                        mac,
                        ..self.station(from)
                    },
                    self.station(flow.to),
                ]
            }
            _ => [self.station(from), self.station(flow.from ^ flow.to ^ from)],
        }
    }

    fn station(&self, host: u32) -> Station {
        let [a, b, c, d] = host.to_be_bytes();
        match self.network.function(host) {
            Some((_, function)) => Station {
                host,
                mac: function.settings.mac,
                vlan: function.settings.vlan,
            },
            // Locally administered.
            None => Station {
                host,
                mac: [0x02, 0, a, b, c, d],
                vlan: 0,
            },
        }
    }
}
