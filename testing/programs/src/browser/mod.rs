//! Browsers without a window, each with one page that tests look at.

mod chromium;
mod firefox;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Error;
use crate::system::call;

pub use chromium::Chromium;
pub use firefox::Firefox;

/// How long one command may take: the machine may be busy.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause between two looks at the page.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The operations of tests on a browser.
pub trait Browser {
    /// Opens another page, to which all further commands go.
    ///
    /// # Errors
    /// [`Error::Failed`] when the browser does not answer.
    fn open_page(&mut self) -> Result<(), Error>;

    /// Loads an address in the page.
    ///
    /// # Errors
    /// As [`Browser::open_page`].
    fn load(&mut self, address: &str) -> Result<(), Error>;

    /// The value of a JavaScript expression, or of the promise that it gives.
    ///
    /// # Errors
    /// [`Error::Failed`] with the exception.
    fn value(&mut self, expression: &str) -> Result<Value, Error>;

    /// The value of an expression that is a text, or nothing where it is none.
    ///
    /// # Panics
    /// When the expression has no value.
    #[track_caller]
    fn text(&mut self, expression: &str) -> String {
        self.value(expression)
            .expect("a value")
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// Presses and releases a key; with Ctrl held down if `with_ctrl`.
    ///
    /// # Errors
    /// As [`Browser::open_page`].
    fn press(&mut self, key: &str, with_ctrl: bool) -> Result<(), Error>;

    /// A picture of the page: a PNG file in base64.
    ///
    /// # Errors
    /// As [`Browser::open_page`].
    fn picture(&mut self) -> Result<String, Error>;

    /// Waits until an expression is true.
    ///
    /// # Errors
    /// [`Error::Failed`] with the text of the page, when it is not true within `seconds`.
    fn wait_for(&mut self, expression: &str, seconds: u64) -> Result<(), Error> {
        let until = Instant::now() + Duration::from_secs(seconds);
        while self.value(expression)? != true {
            if Instant::now() > until {
                let text = self.value("document.body.innerText.slice(0, 2000)")?;
                let output = text.as_str().unwrap_or_default().to_owned();
                return Err(Error::Failed {
                    command: format!("waiting for {expression}"),
                    output,
                });
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Writes a picture of the page to a file.
    ///
    /// # Errors
    /// As [`Browser::picture`], and when the file cannot be written.
    fn screenshot(&mut self, path: &Path) -> Result<(), Error> {
        let picture = self.picture()?;
        let packed = path.with_extension("base64");
        fs::write(&packed, picture).map_err(Error::file(path))?;
        let script = "base64 -d \"$1\" >\"$2\" && rm \"$1\"";
        call(&[
            "sh",
            "-c",
            script,
            "sh",
            &packed.to_string_lossy(),
            &path.to_string_lossy(),
        ])
        .map(drop)
    }
}
