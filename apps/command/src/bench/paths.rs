//! The arguments of `rockery bench paths`.

use super::Output;

/// A way from one network namespace to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Way {
    /// Two veth pairs and a Linux bridge.
    Bridge,
    /// Two macvlan interfaces on one parent, in bridge mode.
    Macvlan,
    /// Two taps and a program that forwards frames between them: two threads of this one.
    Tap,
    /// Two functions of one adapter, in a lab.
    Function,
}

impl Way {
    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bridge => "veth + bridge",
            Self::Macvlan => "macvlan",
            Self::Tap => "tap switch",
            Self::Function => "live function",
        }
    }
}

/// The options of `rockery bench paths`.
#[derive(Debug, clap::Args)]
pub struct BenchPaths {
    /// Paths to measure, separated by commas.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "bridge,macvlan,tap,function"
    )]
    pub path: Vec<Way>,
    /// Duration of each measurement in seconds, 1 to 3600.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: u32,
    /// MTU of the interfaces in bytes, 1280 to 9000.
    #[arg(long, value_name = "BYTES", default_value_t = 1500)]
    #[arg(value_parser = clap::value_parser!(u32).range(1280..=9000))]
    pub mtu: u32,
    /// Where results go.
    #[command(flatten)]
    pub output: Output,
    /// This process is in its namespaces already.
    #[arg(long, hide = true)]
    pub inside: bool,
}
