//! Chromium, driven by its DevTools protocol over a pair of pipes.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Browser, COMMAND_TIMEOUT};
use crate::Error;
use crate::system::call;

/// The bit of the Ctrl key in the modifiers of an event.
const CTRL: u8 = 2;

/// A browser with one page, which ends with this object.
#[derive(Debug)]
pub struct Chromium {
    process: Child,
    commands: File,
    messages: Receiver<Value>,
    session: String,
    number: u64,
    _folder: TempDir,
}

impl Chromium {
    /// Starts the browser with an empty page.
    ///
    /// # Errors
    /// [`Error::Start`] or [`Error::Failed`] when Chromium cannot be started.
    pub fn start() -> Result<Self, Error> {
        let failed = |what: &str| Error::Failed {
            command: "chromium".to_owned(),
            output: what.to_owned(),
        };
        let folder = TempDir::new().map_err(|error| failed(&error.to_string()))?;
        let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        call(&["mkfifo", &path("commands"), &path("messages")])?;
        // Chromium takes commands from descriptor 3 and writes messages to descriptor 4.
        let script = "exec chromium --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage \
                      --no-first-run --window-size=1400,1000 --user-data-dir=\"$1/profile\" \
                      --remote-debugging-pipe about:blank 3<\"$1/commands\" 4>\"$1/messages\"";
        let mut command = Command::new("sh");
        command
            .args(["-c", script, "sh"])
            .arg(folder.path())
            .stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let start = |source| Error::Start {
            program: "chromium".to_owned(),
            source,
        };
        let process = command.spawn().map_err(start)?;
        // Both ends of a pipe are opened at once; without a shell at the other end this would wait for ever.
        let commands = OpenOptions::new()
            .write(true)
            .open(path("commands"))
            .map_err(start)?;
        let messages = File::open(path("messages")).map_err(start)?;
        let (send, receive) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(messages).split(0).map_while(Result::ok) {
                let Ok(message) = serde_json::from_slice(&message) else {
                    break;
                };
                if send.send(message).is_err() {
                    break;
                }
            }
        });
        let session = String::new();
        let mut browser = Self {
            process,
            commands,
            messages: receive,
            session,
            number: 0,
            _folder: folder,
        };
        browser.open_page()?;
        Ok(browser)
    }

    /// One command of the protocol, and its result.
    ///
    /// # Errors
    /// [`Error::Failed`] with the browser's message, or when there is none in time.
    pub fn command(&mut self, method: &str, parameters: Value) -> Result<Value, Error> {
        let failed = |output: String| Error::Failed {
            command: method.to_owned(),
            output,
        };
        self.number += 1;
        let mut command = json!({ "id": self.number, "method": method, "params": parameters });
        if !self.session.is_empty() {
            command["sessionId"] = json!(self.session);
        }
        let sent = self.commands.write_all(format!("{command}\0").as_bytes());
        sent.map_err(|error| failed(error.to_string()))?;
        let until = Instant::now() + COMMAND_TIMEOUT;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let answer = self
                .messages
                .recv_timeout(left)
                .map_err(|_| failed("no answer".to_owned()))?;
            if answer["id"] == self.number {
                return match answer.get("error") {
                    Some(error) => Err(failed(error.to_string())),
                    None => Ok(answer["result"].clone()),
                };
            }
        }
    }
}

impl Browser for Chromium {
    fn open_page(&mut self) -> Result<(), Error> {
        self.session.clear();
        let target = self.command("Target.createTarget", json!({ "url": "about:blank" }))?;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = self.command("Target.attachToTarget", attach)?;
        self.session = session["sessionId"].as_str().unwrap_or_default().to_owned();
        self.command("Page.enable", json!({})).map(drop)
    }

    fn load(&mut self, address: &str) -> Result<(), Error> {
        self.command("Page.navigate", json!({ "url": address }))
            .map(drop)
    }

    fn value(&mut self, expression: &str) -> Result<Value, Error> {
        let parameters = json!({
            "expression": expression,
            "awaitPromise": true,
            "returnByValue": true,
            "userGesture": true,
        });
        let mut answer = self.command("Runtime.evaluate", parameters)?;
        match answer.get("exceptionDetails") {
            Some(thrown) => Err(Error::Failed {
                command: expression.to_owned(),
                output: thrown.to_string(),
            }),
            None => Ok(answer["result"]["value"].take()),
        }
    }

    fn press(&mut self, key: &str, with_ctrl: bool) -> Result<(), Error> {
        let code = match key {
            " " => (32, "Space"),
            "Enter" => (13, "Enter"),
            "Tab" => (9, "Tab"),
            "ArrowDown" => (40, "ArrowDown"),
            _ => (0, key),
        };
        for kind in ["rawKeyDown", "keyUp"] {
            let event = json!({
                "type": kind,
                "key": key,
                "code": code.1,
                "windowsVirtualKeyCode": code.0,
                "modifiers": if with_ctrl { CTRL } else { 0 },
            });
            self.command("Input.dispatchKeyEvent", event)?;
        }
        Ok(())
    }

    fn picture(&mut self) -> Result<String, Error> {
        let mut answer = self.command("Page.captureScreenshot", json!({ "format": "png" }))?;
        serde_json::from_value(answer["data"].take()).map_err(|error| Error::Failed {
            command: "a picture".to_owned(),
            output: error.to_string(),
        })
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}
