//! Firefox, driven by its own protocol for remote control (Marionette): each message is the length of a JSON
//! array, a colon, and the array. Commands are those of WebDriver (W3C).

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Browser, COMMAND_TIMEOUT, LOOK_EVERY};
use crate::Error;

/// The program, and the package that has it.
const PROGRAM: &str = "firefox-esr";
/// Settings of the profile: the protocol's port is any free one, no requests are sent to other servers,
/// colours are dark.
const SETTINGS: &str = "user_pref('marionette.port', 0);
user_pref('app.update.enabled', false);
user_pref('app.normandy.enabled', false);
user_pref('browser.aboutwelcome.enabled', false);
user_pref('browser.safebrowsing.update.enabled', false);
user_pref('browser.shell.checkDefaultBrowser', false);
user_pref('datareporting.policy.dataSubmissionEnabled', false);
user_pref('extensions.update.enabled', false);
user_pref('network.captive-portal-service.enabled', false);
user_pref('network.connectivity-service.enabled', false);
user_pref('services.settings.server', 'data:,');
user_pref('ui.systemUsesDarkTheme', 1);
";
/// Where Firefox writes the port, in its profile.
const PORT: &str = "MarionetteActivePort";
/// The longest length in front of a message, with its colon.
const LENGTH_BYTES_MAX: u64 = 12;
/// The code of the Ctrl key (WebDriver, table of key codes).
const CTRL: &str = "\u{e009}";

/// A browser with one page, which ends with this object.
#[derive(Debug)]
pub struct Firefox {
    process: Child,
    connection: BufReader<TcpStream>,
    number: u64,
    _folder: TempDir,
}

/// The process, which is ended when the browser cannot be connected to.
struct Starting(Option<Child>);

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(process) = &mut self.0 {
            _ = process.kill();
            _ = process.wait();
        }
    }
}

fn failed(command: &str) -> impl Fn(std::io::Error) -> Error + '_ {
    move |error| Error::Failed {
        command: format!("{PROGRAM}: {command}"),
        output: error.to_string(),
    }
}

impl Firefox {
    /// Starts the browser with an empty page.
    ///
    /// # Errors
    /// [`Error::Start`] or [`Error::Failed`] when Firefox cannot be started.
    pub fn start() -> Result<Self, Error> {
        let folder = TempDir::new().map_err(failed("a folder"))?;
        let profile = folder.path().join("profile");
        fs::create_dir(&profile).map_err(failed("a profile"))?;
        fs::write(profile.join("user.js"), SETTINGS).map_err(failed("a profile"))?;
        let mut command = Command::new(PROGRAM);
        command.args([
            "--headless",
            "--marionette",
            "--no-remote",
            "--width",
            "1400",
            "--height",
            "1000",
        ]);
        command
            .arg("--profile")
            .arg(&profile)
            .arg("about:blank")
            .env("HOME", folder.path());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let start = |source| Error::Start {
            program: PROGRAM.to_owned(),
            source,
        };
        let mut process = Starting(Some(command.spawn().map_err(start)?));
        let connection = connect(&profile.join(PORT))?;
        connection
            .set_read_timeout(Some(COMMAND_TIMEOUT))
            .map_err(failed("a connection"))?;
        let mut connection = BufReader::new(connection);
        // Firefox sends the first message: the version of the protocol.
        receive(&mut connection)?;
        let process = process
            .0
            .take()
            .ok_or_else(|| failed("a process")(std::io::ErrorKind::Other.into()))?;
        let mut browser = Self {
            process,
            connection,
            number: 0,
            _folder: folder,
        };
        let timeouts = json!({ "script": COMMAND_TIMEOUT.as_millis() as u64 });
        browser.command(
            "WebDriver:NewSession",
            json!({ "pageLoadStrategy": "none", "timeouts": timeouts }),
        )?;
        Ok(browser)
    }

    /// One command of the protocol, and its result.
    ///
    /// # Errors
    /// [`Error::Failed`] with the browser's message, or when there is none in time.
    pub fn command(&mut self, name: &str, parameters: Value) -> Result<Value, Error> {
        /// The type of a command: the first element of its array.
        const COMMAND: u8 = 0;
        self.number += 1;
        let message = json!([COMMAND, self.number, name, parameters]).to_string();
        let sent = self
            .connection
            .get_mut()
            .write_all(format!("{}:{message}", message.len()).as_bytes());
        sent.map_err(failed(name))?;
        loop {
            let mut answer = receive(&mut self.connection)?;
            if answer[1] != self.number {
                continue;
            }
            return match &answer[2] {
                Value::Null => Ok(answer[3].take()),
                error => Err(Error::Failed {
                    command: name.to_owned(),
                    output: error.to_string(),
                }),
            };
        }
    }
}

/// Waits for the port, and connects.
fn connect(port: &Path) -> Result<TcpStream, Error> {
    let until = Instant::now() + COMMAND_TIMEOUT;
    loop {
        let found = fs::read_to_string(port)
            .ok()
            .and_then(|text| text.trim().parse().ok());
        let connection = found.map(|port: u16| TcpStream::connect(("127.0.0.1", port)));
        match connection {
            Some(Ok(connection)) => return Ok(connection),
            _ if Instant::now() > until => {
                return Err(Error::Failed {
                    command: PROGRAM.to_owned(),
                    output: "it listens on no port".to_owned(),
                });
            }
            _ => std::thread::sleep(LOOK_EVERY),
        }
    }
}

/// The next message.
fn receive(connection: &mut BufReader<TcpStream>) -> Result<Value, Error> {
    let wrong = || failed("a message")(std::io::ErrorKind::InvalidData.into());
    let mut length = Vec::new();
    connection
        .take(LENGTH_BYTES_MAX)
        .read_until(b':', &mut length)
        .map_err(failed("a message"))?;
    let length = String::from_utf8_lossy(&length);
    let length: usize = length.trim_end_matches(':').parse().map_err(|_| wrong())?;
    let mut message = vec![0; length];
    connection
        .read_exact(&mut message)
        .map_err(failed("a message"))?;
    serde_json::from_slice(&message).map_err(|_| wrong())
}

impl Browser for Firefox {
    fn open_page(&mut self) -> Result<(), Error> {
        let page = self.command(
            "WebDriver:NewWindow",
            json!({ "type": "tab", "focus": true }),
        )?;
        self.command(
            "WebDriver:SwitchToWindow",
            json!({ "handle": page["handle"], "focus": true }),
        )
        .map(drop)
    }

    fn load(&mut self, address: &str) -> Result<(), Error> {
        self.command("WebDriver:Navigate", json!({ "url": address }))
            .map(drop)
    }

    fn value(&mut self, expression: &str) -> Result<Value, Error> {
        // Without a sandbox of its own, the script sees what the page's scripts see.
        let script = format!("return ({expression});");
        let parameters = json!({ "script": script, "args": [], "sandbox": null });
        Ok(self.command("WebDriver:ExecuteScript", parameters)?["value"].take())
    }

    fn press(&mut self, key: &str, with_ctrl: bool) -> Result<(), Error> {
        let key = match key {
            "Enter" => "\u{e007}",
            "Tab" => "\u{e004}",
            "ArrowDown" => "\u{e015}",
            other => other,
        };
        let one = |kind: &str, key: &str| json!({ "type": kind, "value": key });
        let mut actions = vec![one("keyDown", key), one("keyUp", key)];
        if with_ctrl {
            actions.insert(0, one("keyDown", CTRL));
            actions.push(one("keyUp", CTRL));
        }
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": actions });
        self.command("WebDriver:PerformActions", json!({ "actions": [keyboard] }))
            .map(drop)
    }

    fn picture(&mut self) -> Result<String, Error> {
        let mut answer = self.command("WebDriver:TakeScreenshot", json!({ "full": false }))?;
        serde_json::from_value(answer["value"].take()).map_err(|error| Error::Failed {
            command: "a picture".to_owned(),
            output: error.to_string(),
        })
    }
}

impl Drop for Firefox {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}
