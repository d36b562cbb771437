//! Scripts of PowerShell, read as intents: one for each adapter that a script names.

use super::powershell::{Cmdlet, Said, Script, number_of};
use super::write::ETHERNET_HEADER;
use crate::intent::{HostSettings, Intent, Port, Schedule, Trust, WindowsSettings};
use crate::outcome::Outcomes;
use crate::text::{ReadError, lines, set_bits};

/// Cmdlets, verbs and programs that set nothing of RDMA, by their beginnings.
const IRRELEVANT: &[&str] = &[
    "get-",
    "test-",
    "write-",
    "out-",
    "start-sleep",
    "restart-computer",
    "restart-netadapter",
    "import-module",
    "set-executionpolicy",
    "netstat",
    "ping",
    "ipconfig",
    "echo",
    "exit",
    "shutdown",
];

/// Cmdlets that objects are passed to and that change nothing.
const VIEWS: &[&str] = &[
    "format-",
    "ft",
    "fl",
    "select",
    "sort",
    "where",
    "?",
    "%",
    "out-",
    "convertto-",
    "export-",
    "measure-",
    "more",
    "findstr",
];

/// Features of Windows that SMB Direct needs.
const SMB_DIRECT: &str = "smbdirect";
const DATA_CENTER_BRIDGING: [&str; 2] = ["data-center-bridging", "datacenterbridging"];

/// A share of bandwidth, or strict priority, of some priorities.
struct TrafficClass {
    name: String,
    priorities: u8,
    /// `None` for strict priority.
    percent: Option<u8>,
}

/// Settings of one adapter; `None` where the script does not set them.
#[derive(Clone, Default)]
struct AdapterSettings {
    /// The name as the script has it first.
    name: String,
    jumbo: Option<u32>,
    pause: Option<bool>,
    functions: Option<u16>,
    qos: Option<bool>,
    rdma: Option<bool>,
    offered: Option<bool>,
    technology: Option<u8>,
    willing: Option<bool>,
}

impl AdapterSettings {
    /// These settings, and those of another one where these are silent.
    fn or(&self, other: &Self) -> Self {
        Self {
            name: self.name.clone(),
            jumbo: self.jumbo.or(other.jumbo),
            pause: self.pause.or(other.pause),
            functions: self.functions.or(other.functions),
            qos: self.qos.or(other.qos),
            rdma: self.rdma.or(other.rdma),
            offered: self.offered.or(other.offered),
            technology: self.technology.or(other.technology),
            willing: self.willing.or(other.willing),
        }
    }
}

/// What the cmdlets so far have set.
struct Reading {
    file: String,
    pfc: u8,
    host: HostSettings,
    policies: Vec<(String, u8)>,
    classes: Vec<TrafficClass>,
    adapters: Vec<AdapterSettings>,
    /// Settings of all adapters (`-Name *`).
    all: AdapterSettings,
}

impl Reading {
    fn new(file: &str) -> Self {
        let windows = WindowsSettings {
            // Windows' own setting is Blocked.
            across_subnets: false,
            ..WindowsSettings::default()
        };
        Self {
            file: file.to_owned(),
            pfc: 0,
            host: HostSettings {
                // Windows' own setting.
                willing: true,
                windows,
                ..HostSettings::default()
            },
            policies: Vec::new(),
            classes: Vec::new(),
            adapters: Vec::new(),
            all: AdapterSettings::default(),
        }
    }

    /// Takes a cmdlet; whether it is one that concerns RDMA.
    fn cmdlet(&mut self, cmdlet: &Cmdlet) -> Result<bool, ReadError> {
        let is_one_of =
            |words: &[&str], name: &str| words.iter().any(|word| name.starts_with(word));
        let is_shown = is_one_of(IRRELEVANT, &cmdlet.name);
        if is_shown && cmdlet.piped.iter().all(|name| is_one_of(VIEWS, name)) {
            return Ok(false);
        }
        if !cmdlet.piped.is_empty() && !cmdlet.piped.iter().all(|name| name == "out-null") {
            let what = "objects that a pipe passes are not evaluated: name the adapter or setting";
            return Err(cmdlet.wrong(&self.file, what));
        }
        match cmdlet.name.as_str() {
            "netsh" | "netsh.exe" => return self.netsh(cmdlet),
            "set-itemproperty" | "new-itemproperty" => return self.registry(cmdlet),
            "enable-windowsoptionalfeature" => self.feature(cmdlet, "featurename", true)?,
            "disable-windowsoptionalfeature" => self.feature(cmdlet, "featurename", false)?,
            "install-windowsfeature" | "add-windowsfeature" => {
                self.feature(cmdlet, "name", true)?
            }
            "uninstall-windowsfeature" | "remove-windowsfeature" => {
                self.feature(cmdlet, "name", false)?;
            }
            "set-netoffloadglobalsetting" => self.offload(cmdlet)?,
            "set-smbclientconfiguration" | "set-smbserverconfiguration" => {
                if cmdlet.get("enablemultichannel").is_some() {
                    let on = cmdlet.boolean(&self.file, "enablemultichannel")?;
                    self.host.windows.multichannel &= on;
                }
            }
            "set-netqosdcbxsetting" => {
                let on = cmdlet.boolean(&self.file, "willing")?;
                match cmdlet.all("interfacealias") {
                    Some(_) => {
                        self.adapter(cmdlet, "interfacealias", |own| own.willing = Some(on))?
                    }
                    None => self.host.willing = on,
                }
            }
            "new-netqospolicy" | "set-netqospolicy" => self.policy(cmdlet)?,
            "remove-netqospolicy" => {
                let name = removed(cmdlet);
                self.policies
                    .retain(|(own, _)| name.as_ref().is_some_and(|name| name != own));
            }
            "enable-netqosflowcontrol" => self.pfc |= self.priorities(cmdlet)?,
            "disable-netqosflowcontrol" => self.pfc &= !self.priorities(cmdlet)?,
            "new-netqostrafficclass" | "set-netqostrafficclass" => self.traffic_class(cmdlet)?,
            "remove-netqostrafficclass" => {
                let name = removed(cmdlet);
                self.classes
                    .retain(|own| name.as_ref().is_some_and(|name| *name != own.name));
            }
            _ => return self.of_adapter(cmdlet),
        }
        Ok(true)
    }

    /// Takes a cmdlet of adapters; whether it is one that concerns RDMA.
    fn of_adapter(&mut self, cmdlet: &Cmdlet) -> Result<bool, ReadError> {
        match cmdlet.name.as_str() {
            "enable-netadapterqos" => self.adapter(cmdlet, "name", |own| own.qos = Some(true))?,
            "disable-netadapterqos" => self.adapter(cmdlet, "name", |own| own.qos = Some(false))?,
            "enable-netadapterrdma" => self.adapter(cmdlet, "name", |own| own.rdma = Some(true))?,
            "disable-netadapterrdma" => {
                self.adapter(cmdlet, "name", |own| own.rdma = Some(false))?
            }
            "set-netadapteradvancedproperty" => return self.property(cmdlet),
            "enable-netadaptersriov" | "set-netadaptersriov" => {
                let count = match cmdlet.get("numvfs") {
                    Some(_) => cmdlet.number(&self.file, "numvfs", 65_535)? as u16,
                    None => return Ok(false),
                };
                self.adapter(cmdlet, "name", |own| own.functions = Some(count))?;
            }
            "disable-netadaptersriov" => {
                self.adapter(cmdlet, "name", |own| own.functions = Some(0))?;
            }
            "new-vmswitch" | "enable-netadapter" | "new-netipaddress" => return Ok(false),
            _ => return Err(cmdlet.wrong(&self.file, "this cmdlet is not known")),
        }
        Ok(true)
    }

    /// `netsh int tcp`: ECN and other settings of TCP, which RDMA does not use.
    fn netsh(&self, cmdlet: &Cmdlet) -> Result<bool, ReadError> {
        let words: Vec<String> = cmdlet
            .positional()
            .iter()
            .map(|word| word.to_lowercase())
            .collect();
        match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["int" | "interface", "tcp", "set" | "show" | "reset", ..] | [.., "show", _] => {
                Ok(false)
            }
            _ => Err(cmdlet.wrong(&self.file, "only settings of TCP are known of netsh")),
        }
    }

    /// Values of the registry that SMB reads.
    fn registry(&mut self, cmdlet: &Cmdlet) -> Result<bool, ReadError> {
        // The first word without a name is the path if none is named, and else the name.
        let unnamed = cmdlet.positional();
        let (path, rest) = match cmdlet.get("path").or(cmdlet.get("literalpath")) {
            Some(path) => (path, &unnamed[..]),
            None => match unnamed.split_first() {
                Some((path, rest)) => (*path, rest),
                None => return Err(cmdlet.wrong(&self.file, "-Path is missing")),
            },
        };
        let name = cmdlet.get("name").or(rest.first().copied());
        let name = name.unwrap_or_default().to_lowercase();
        let is_client = path.to_lowercase().contains("lanmanworkstation");
        let dialect = |limit: u32| {
            cmdlet
                .number(&self.file, "value", limit)
                .map(|own| own as u16)
        };
        match name.as_str() {
            "minsmb2dialect" if is_client => self.host.windows.dialects.0 = Some(dialect(0xffff)?),
            "maxsmb2dialect" if is_client => self.host.windows.dialects.1 = Some(dialect(0xffff)?),
            "connectioncountperrdmanetworkinterface" if is_client => {
                let count = cmdlet.number(&self.file, "value", u32::MAX)?;
                if !(1..=16).contains(&count) {
                    let what = "ConnectionCountPerRdmaNetworkInterface is a number from 1 to 16";
                    return Err(cmdlet.wrong(&self.file, what));
                }
                self.host.windows.connections = Some(count as u8);
            }
            "disablemultichannel" => {
                self.host.windows.multichannel &= cmdlet.number(&self.file, "value", 1)? == 0;
            }
            // Of connections over TCP.
            "connectioncountperrssnetworkinterface" | "maximumconnectioncountperserver" => {
                return Ok(false);
            }
            _ => {
                let what = "this value of the registry is not known";
                return Err(cmdlet.wrong(&self.file, what));
            }
        }
        Ok(true)
    }

    /// A feature of Windows. DCB by itself changes no traffic.
    fn feature(&mut self, cmdlet: &Cmdlet, key: &str, on: bool) -> Result<(), ReadError> {
        let names = cmdlet.named_or_first(key).unwrap_or_default();
        for name in names.iter().map(|name| name.to_lowercase()) {
            if name == SMB_DIRECT {
                self.host.windows.smb_direct = on;
            } else if !DATA_CENTER_BRIDGING.contains(&name.as_str()) && !name.starts_with("smb") {
                return Err(cmdlet.wrong(&self.file, "this feature of Windows is not known"));
            }
        }
        match names.is_empty() {
            true => Err(cmdlet.wrong(&self.file, &format!("-{key} is missing"))),
            false => Ok(()),
        }
    }

    /// PowerShell completes the beginnings of values: `Allow` is `Allowed`.
    fn offload(&mut self, cmdlet: &Cmdlet) -> Result<(), ReadError> {
        let value = |key: &str, on: &str, off: &str| match cmdlet.get(key).map(str::to_lowercase) {
            None => Ok(None),
            Some(word) if !word.is_empty() && on.starts_with(&word) => Ok(Some(true)),
            Some(word) if !word.is_empty() && off.starts_with(&word) => Ok(Some(false)),
            Some(_) => Err(cmdlet.wrong(&self.file, &format!("-{key} is {on} or {off}"))),
        };
        let direct = value("networkdirect", "enabled", "disabled")?;
        let across = value("networkdirectacrossipsubnets", "allowed", "blocked")?;
        let own = &mut self.host.windows;
        own.network_direct = direct.unwrap_or(own.network_direct);
        own.across_subnets = across.unwrap_or(own.across_subnets);
        Ok(())
    }

    /// A policy that gives SMB Direct a priority; other policies are of other traffic.
    fn policy(&mut self, cmdlet: &Cmdlet) -> Result<(), ReadError> {
        let name = cmdlet.named_or_first("name").and_then(<[String]>::first);
        let name = name.map(|name| name.to_lowercase()).unwrap_or_default();
        let known = self.policies.iter().position(|(own, _)| *own == name);
        let port = cmdlet.get("netdirectportmatchcondition");
        if port.is_some_and(|port| number_of(port) != Some(445))
            || (port.is_none() && known.is_none())
        {
            return Ok(());
        }
        let priority = cmdlet.number(&self.file, "priorityvalue8021action", 7)? as u8;
        match known {
            Some(index) => self.policies[index].1 = priority,
            None => self.policies.push((name, priority)),
        }
        Ok(())
    }

    fn priorities(&self, cmdlet: &Cmdlet) -> Result<u8, ReadError> {
        let words = cmdlet.named_or_first("priority").unwrap_or_default();
        let mut mask = 0;
        for word in words {
            let priority = number_of(word)
                .filter(|priority| *priority < 8)
                .ok_or_else(|| {
                    cmdlet.wrong(&self.file, "-Priority is a list of numbers from 0 to 7")
                })?;
            mask |= 1 << priority;
        }
        match mask {
            0 => Err(cmdlet.wrong(&self.file, "-Priority is missing")),
            mask => Ok(mask),
        }
    }

    /// `New-NetQosTrafficClass`: the algorithm of some classes, and the share of those with ETS.
    fn traffic_class(&mut self, cmdlet: &Cmdlet) -> Result<(), ReadError> {
        let name = cmdlet.named_or_first("name").and_then(<[String]>::first);
        let name = name.map(|name| name.to_lowercase()).unwrap_or_default();
        let known = self.classes.iter().position(|own| own.name == name);
        let is_strict = cmdlet
            .get("algorithm")
            .is_some_and(|word| word.eq_ignore_ascii_case("strict"));
        let percent = match is_strict {
            true => None,
            false => Some(cmdlet.number(&self.file, "bandwidthpercentage", 100)? as u8),
        };
        let priorities = match (cmdlet.all("priority"), known) {
            (None, Some(index)) => self.classes[index].priorities,
            _ => self.priorities(cmdlet)?,
        };
        let own = TrafficClass {
            name,
            priorities,
            percent,
        };
        match known {
            Some(index) => self.classes[index] = own,
            None => self.classes.push(own),
        }
        Ok(())
    }

    /// Sets something of the adapters that a cmdlet names.
    fn adapter(
        &mut self,
        cmdlet: &Cmdlet,
        key: &str,
        set: impl Fn(&mut AdapterSettings),
    ) -> Result<(), ReadError> {
        let names = cmdlet.named_or_first(key).unwrap_or_default();
        if names.is_empty() {
            return Err(cmdlet.wrong(&self.file, &format!("-{key} is missing")));
        }
        for name in names {
            if name == "*" {
                // What all adapters are told counts for those that were named before, too.
                self.adapters.iter_mut().for_each(&set);
                set(&mut self.all);
                continue;
            }
            if name.starts_with(['$', '(']) || name.contains(['*', '?']) {
                let what = "the adapter's name is an expression, which is not evaluated";
                return Err(cmdlet.wrong(&self.file, what));
            }
            let known = self
                .adapters
                .iter_mut()
                .find(|own| own.name.eq_ignore_ascii_case(name));
            match known {
                Some(own) => set(own),
                None => {
                    let mut own = AdapterSettings {
                        name: name.clone(),
                        ..AdapterSettings::default()
                    };
                    set(&mut own);
                    self.adapters.push(own);
                }
            }
        }
        Ok(())
    }

    /// A property of an adapter, by its keyword or its name in English; whether it concerns RDMA.
    fn property(&mut self, cmdlet: &Cmdlet) -> Result<bool, ReadError> {
        let keyword = match (cmdlet.get("registrykeyword"), cmdlet.get("displayname")) {
            (Some(keyword), _) => keyword.to_lowercase(),
            (None, Some(name)) => match name.to_lowercase().as_str() {
                "jumbo packet" => "*jumbopacket".to_owned(),
                "networkdirect functionality" => "*networkdirect".to_owned(),
                "networkdirect technology" => "*networkdirecttechnology".to_owned(),
                other => other.to_owned(),
            },
            (None, None) => {
                return Err(cmdlet.wrong(&self.file, "-RegistryKeyword is missing"));
            }
        };
        let key = match cmdlet.get("registryvalue") {
            Some(_) => "registryvalue",
            None => "displayvalue",
        };
        let number = |max: u32| {
            let shown = cmdlet.get(key).unwrap_or_default().to_lowercase();
            let named = match shown.as_str() {
                "enabled" => Some(1),
                "disabled" => Some(0),
                "iwarp" => Some(1),
                "infiniband" => Some(2),
                "roce" => Some(3),
                "rocev2" => Some(4),
                _ => None,
            };
            named.map_or_else(|| cmdlet.number(&self.file, key, max), Ok)
        };
        match keyword.as_str() {
            "*jumbopacket" => {
                let jumbo = number(65_535)?;
                self.adapter(cmdlet, "name", |own| own.jumbo = Some(jumbo))?;
            }
            "*flowcontrol" => {
                let on = number(8)? != 0;
                self.adapter(cmdlet, "name", |own| own.pause = Some(on))?;
            }
            "*networkdirect" => {
                let on = number(1)? != 0;
                self.adapter(cmdlet, "name", |own| own.offered = Some(on))?;
            }
            "*networkdirecttechnology" => {
                let technology = number(4)? as u8;
                self.adapter(cmdlet, "name", |own| own.technology = Some(technology))?;
            }
            // Keywords of NDIS: queues, offloads and the like. QoS has one of its own.
            standard if standard.starts_with('*') && standard != "*qos" => return Ok(false),
            "*qos" => {
                let on = number(1)? != 0;
                self.adapter(cmdlet, "name", |own| own.qos = Some(on))?;
            }
            _ => {
                let what = "this property is the driver's own, and is not known";
                return Err(cmdlet.wrong(&self.file, what));
            }
        }
        Ok(true)
    }

    /// The intents, one for each adapter.
    fn finish(self) -> Vec<Intent> {
        let unnamed = AdapterSettings::default();
        let adapters = match self.adapters.as_slice() {
            [] => std::slice::from_ref(&unnamed),
            adapters => adapters,
        };
        adapters
            .iter()
            .map(|own| self.intent(&own.or(&self.all)))
            .collect()
    }

    fn intent(&self, own: &AdapterSettings) -> Intent {
        let mut intent = Intent {
            trust: Trust::Pcp,
            pcp: [0, 1, 2, 3, 4, 5, 6, 7],
            ..Intent::nothing()
        };
        let (mut percents, mut strict) = ([0_u8; 8], 0);
        for class in &self.classes {
            set_bits(&mut strict, class.priorities, class.percent.is_none());
            for priority in crate::text::classes(class.priorities) {
                percents[usize::from(priority)] = class.percent.unwrap_or(0);
            }
        }
        // Bandwidth that no class is given belongs to the default class, which has priority 0.
        let given = percents[1..].iter();
        percents[0] = 100_u8.saturating_sub(given.fold(0, |sum, own| sum.saturating_add(*own)));
        for (class, queue) in intent.queues.iter_mut().enumerate() {
            queue.schedule = match strict >> class & 1 {
                1 => Schedule::Strict,
                _ => Schedule::Weighted(percents[class].max(1)),
            };
        }
        intent.pfc_send = if own.qos == Some(false) { 0 } else { self.pfc };
        intent.pfc_obey = intent.pfc_send;
        if let Some(jumbo) = own.jumbo {
            intent.mtu = jumbo.saturating_sub(ETHERNET_HEADER);
        }
        intent.global_pause = own.pause.unwrap_or(false);
        let smb_priority = self.policies.first().map_or(0, |(_, priority)| *priority);
        let windows = WindowsSettings {
            // Both switches have to be on.
            offered: own.offered.unwrap_or(true) && own.rdma.unwrap_or(true),
            technology: own.technology.unwrap_or(4),
            ..self.host.windows
        };
        intent.host = Some(HostSettings {
            device: own.name.clone(),
            smb_priority,
            willing: own.willing.unwrap_or(self.host.willing),
            functions: own.functions.unwrap_or(0),
            windows,
            ..HostSettings::default()
        });
        intent.ports = vec![Port {
            name: own.name.clone(),
            mbps: None,
            metres: None,
        }];
        intent
    }
}

/// The name of what a cmdlet removes, in small letters; `None` for all.
fn removed(cmdlet: &Cmdlet) -> Option<String> {
    let name = cmdlet.named_or_first("name").and_then(<[String]>::first)?;
    (name != "*").then(|| name.to_lowercase())
}

pub(crate) fn read(file: &str, text: &str) -> Result<(Vec<Intent>, Outcomes), ReadError> {
    let mut reading = Reading::new(file);
    let lines = lines(file, text, &[])?;
    let mut outcomes = Outcomes::of(file, &lines);
    let mut script = Script::default();
    for line in &lines {
        // The lines of a statement that goes on are told with its last one.
        outcomes.irrelevant(line.number);
        let cmdlets = match script.take(file, line) {
            Ok(Said::Nothing) => continue,
            Ok(Said::Cmdlets(cmdlets)) => cmdlets,
            Err(error) => {
                outcomes.not_understood(&error);
                continue;
            }
        };
        for cmdlet in cmdlets {
            match reading.cmdlet(&cmdlet) {
                Ok(true) => {
                    let own = core::iter::once(&cmdlet.line).chain(&cmdlet.more);
                    own.for_each(|line| outcomes.applied(*line));
                }
                Ok(false) => {}
                Err(error) => outcomes.not_understood(&error),
            }
        }
    }
    if let Some(line) = script.open() {
        let what = "the script ends within a statement";
        outcomes.not_understood(&ReadError::new(file, line, what));
    }
    Ok((reading.finish(), outcomes))
}
