//! Functions of OpenSSL that the crate `openssl` does not have: external PSKs in TLS 1.3 with any hash
//! function (SSL_CTX_set_psk_find_session_callback(3), SSL_CTX_set_psk_use_session_callback(3)).

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::OnceLock;

use foreign_types::ForeignTypeRef;
use openssl::ex_data::Index;
use openssl::ssl::{Ssl, SslContextBuilder, SslRef};
use openssl_sys as ffi;

use crate::auth::Hash;
use crate::tls::{Offer, Psk, Refusal};

/// A function that finds the PSKs of an identity.
pub(crate) type Find = Box<dyn Fn(&str) -> Vec<Psk> + Send + Sync>;

/// How a server selects the PSK of a connection.
struct Selection {
    find: Find,
    /// The first handshake messages: ClientHello, and HelloRetryRequest and ClientHello.
    messages: Vec<Vec<u8>>,
    refusal: Option<Refusal>,
}

/// The messages up to the second ClientHello.
const MESSAGES_MAX: usize = 3;
/// The longest messages that are recorded: an identity has at most 540 bytes, key shares 1.3 kB.
const MESSAGES_BYTES_MAX: usize = 16 << 10;

type FindSession =
    unsafe extern "C" fn(*mut ffi::SSL, *const u8, usize, *mut *mut ffi::SSL_SESSION) -> c_int;
type Recorded =
    unsafe extern "C" fn(c_int, c_int, c_int, *const c_void, usize, *mut ffi::SSL, *mut c_void);
type UseSession = unsafe extern "C" fn(
    *mut ffi::SSL,
    *const ffi::EVP_MD,
    *mut *const u8,
    *mut usize,
    *mut *mut ffi::SSL_SESSION,
) -> c_int;

// SAFETY: as openssl/ssl.h of 1.1.1 and later declares them.
unsafe extern "C" {
    fn SSL_CTX_set_psk_find_session_callback(context: *mut ffi::SSL_CTX, find: Option<FindSession>);
    fn SSL_CTX_set_psk_use_session_callback(context: *mut ffi::SSL_CTX, choose: Option<UseSession>);
    fn SSL_CTX_set_msg_callback(context: *mut ffi::SSL_CTX, record: Option<Recorded>);
    fn SSL_SESSION_new() -> *mut ffi::SSL_SESSION;
    fn SSL_SESSION_set1_master_key(
        session: *mut ffi::SSL_SESSION,
        key: *const u8,
        length: usize,
    ) -> c_int;
    fn SSL_SESSION_set_cipher(
        session: *mut ffi::SSL_SESSION,
        cipher: *const ffi::SSL_CIPHER,
    ) -> c_int;
    fn SSL_SESSION_set_protocol_version(session: *mut ffi::SSL_SESSION, version: c_int) -> c_int;
    fn SSL_CIPHER_find(ssl: *mut ffi::SSL, number: *const u8) -> *const ffi::SSL_CIPHER;
}

/// The extension `pre_shared_key` (RFC 8446, 4.2.11).
const PRE_SHARED_KEY: c_uint = 41;
/// The record type of handshake messages (RFC 8446, B.1).
const HANDSHAKE: c_int = 22;

/// The cipher suite with a hash function: its name and its number (RFC 8446, B.4).
pub(crate) fn cipher(hash: Hash) -> (&'static str, [u8; 2]) {
    match hash {
        Hash::Sha384 | Hash::Sha512 => ("TLS_AES_256_GCM_SHA384", [0x13, 0x02]),
        Hash::Sha256 => ("TLS_AES_128_GCM_SHA256", [0x13, 0x01]),
    }
}

type Places = (Index<Ssl, Selection>, Index<Ssl, Psk>);

/// The ex_data indices at which a connection has its finder and its PSK; `None` without memory for them.
fn places() -> Option<Places> {
    static PLACES: OnceLock<Option<Places>> = OnceLock::new();
    *PLACES.get_or_init(|| Some((Ssl::new_ex_index().ok()?, Ssl::new_ex_index().ok()?)))
}

/// The PSK that a connection uses.
pub(crate) fn key_of(ssl: &SslRef) -> Option<&Psk> {
    ssl.ex_data(places()?.1)
}

/// Makes a connection use this PSK.
pub(crate) fn use_key(ssl: &mut SslRef, key: Psk) {
    if let Some((_, place)) = places() {
        ssl.set_ex_data(place, key);
    }
}

/// Makes a connection look up the PSK that the client names.
pub(crate) fn look_for_key(ssl: &mut SslRef, find: Find) {
    if let Some((place, _)) = places() {
        ssl.set_ex_data(
            place,
            Selection {
                find,
                messages: Vec::new(),
                refusal: None,
            },
        );
    }
}

/// Why the server has refused the PSKs of the client, if it has.
pub(crate) fn refusal_of(ssl: &SslRef) -> Option<&Refusal> {
    ssl.ex_data(places()?.0)?.refusal.as_ref()
}

/// Configures a client: it offers the PSK of [`use_key`].
pub(crate) fn offer(context: &mut SslContextBuilder) {
    // SAFETY: the context lives; the function keeps to what OpenSSL expects of it.
    unsafe { SSL_CTX_set_psk_use_session_callback(context.as_ptr(), Some(offered)) };
}

/// Configures a server: it uses the PSK that [`look_for_key`] finds, and that the client proves to have.
/// OpenSSL selects the cipher suite before it looks up the PSK, so only the suite of that PSK is offered for
/// selection. OpenSSL would take the first PSK of an identity, and would answer an unknown one as if
/// certificates were missing, so the PSK is selected as soon as the ClientHello is there.
pub(crate) fn ask(context: &mut SslContextBuilder) {
    // SAFETY: the context lives, and the callbacks are functions of the types that OpenSSL calls.
    unsafe {
        SSL_CTX_set_psk_find_session_callback(context.as_ptr(), Some(asked));
        SSL_CTX_set_msg_callback(context.as_ptr(), Some(recorded));
        ffi::SSL_CTX_set_client_hello_cb(context.as_ptr(), Some(greeted), ptr::null_mut());
    }
}

/// The PSK that the client offers and has; `None` if it offers none.
fn selected(ssl: &SslRef) -> Result<Option<Psk>, Refusal> {
    let (mut bytes, mut length) = (ptr::null(), 0);
    // SAFETY: the connection lives; what is found lives as long as the ClientHello, which is looked at now.
    let extension = unsafe {
        match ffi::SSL_client_hello_get0_ext(ssl.as_ptr(), PRE_SHARED_KEY, &mut bytes, &mut length)
        {
            1 if !bytes.is_null() => std::slice::from_raw_parts(bytes, length),
            _ => return Ok(None),
        }
    };
    let selection = places()
        .and_then(|(place, _)| ssl.ex_data(place))
        .ok_or(Refusal::Malformed)?;
    let offer = Offer::parse(&selection.messages, extension).ok_or(Refusal::Malformed)?;
    let mut wrong = None;
    for identity in offer.identities() {
        let known = std::str::from_utf8(identity).map(|identity| (selection.find)(identity));
        let known = known.unwrap_or_default();
        if known.is_empty() {
            continue;
        }
        if let Some(psk) = known.into_iter().find(|psk| offer.proves(psk)) {
            return Ok(Some(psk));
        }
        wrong.get_or_insert(identity);
    }
    let first = offer.identities().next().unwrap_or_default();
    Err(match wrong {
        Some(identity) => Refusal::WrongKey(Refusal::shown(identity)),
        None => Refusal::UnknownIdentity(Refusal::shown(first)),
    })
}

/// Processes a ClientHello, the first or the second one: selects the PSK, or refuses the handshake.
unsafe extern "C" fn greeted(ssl: *mut ffi::SSL, alert: *mut c_int, _: *mut c_void) -> c_int {
    // SAFETY: OpenSSL calls this with a connection that lives.
    let ssl = unsafe { SslRef::from_ptr_mut(ssl) };
    let refusal = match selected(ssl) {
        Ok(Some(psk)) => {
            let is_set = ssl.set_ciphersuites(cipher(psk.hash).0).is_ok();
            use_key(ssl, psk);
            return if is_set {
                ffi::SSL_CLIENT_HELLO_SUCCESS
            } else {
                ffi::SSL_CLIENT_HELLO_ERROR
            };
        }
        Ok(None) => Refusal::NoPsk,
        Err(refusal) => refusal,
    };
    let code = refusal.alert();
    if let Some(selection) = places().and_then(|(place, _)| ssl.ex_data_mut(place)) {
        selection.refusal = Some(refusal);
    }
    let Some(code) = code else {
        return ffi::SSL_CLIENT_HELLO_SUCCESS;
    };
    // SAFETY: OpenSSL passes a place for the alert.
    unsafe { *alert = code.into() };
    ffi::SSL_CLIENT_HELLO_ERROR
}

/// Records the handshake messages up to the last ClientHello, of which binders are made.
unsafe extern "C" fn recorded(
    _: c_int,
    _: c_int,
    content: c_int,
    bytes: *const c_void,
    length: usize,
    ssl: *mut ffi::SSL,
    _: *mut c_void,
) {
    if content != HANDSHAKE || bytes.is_null() || ssl.is_null() {
        return;
    }
    // SAFETY: OpenSSL calls this with a connection that lives, and a message of so many bytes.
    let (ssl, message) = unsafe {
        (
            SslRef::from_ptr_mut(ssl),
            std::slice::from_raw_parts(bytes.cast::<u8>(), length),
        )
    };
    let Some(selection) = places().and_then(|(place, _)| ssl.ex_data_mut(place)) else {
        return;
    };
    let kept: usize = selection.messages.iter().map(Vec::len).sum();
    if selection.messages.len() < MESSAGES_MAX && kept + length <= MESSAGES_BYTES_MAX {
        selection.messages.push(message.to_vec());
    }
}

/// A session that represents a PSK; null when memory is short.
fn session(ssl: &SslRef, key: &Psk) -> *mut ffi::SSL_SESSION {
    let number = cipher(key.hash).1;
    // SAFETY: the connection lives, the key has as many bytes as are said, the number has the two that are
    // read.
    // The session is new and has no other reference, and it is freed when it is not finished.
    unsafe {
        let session = SSL_SESSION_new();
        let cipher = SSL_CIPHER_find(ssl.as_ptr(), number.as_ptr());
        if session.is_null() || cipher.is_null() {
            ffi::SSL_SESSION_free(session);
            return ptr::null_mut();
        }
        let is_made = SSL_SESSION_set1_master_key(session, key.key.as_ptr(), key.key.len()) == 1
            && SSL_SESSION_set_cipher(session, cipher) == 1
            && SSL_SESSION_set_protocol_version(session, ffi::TLS1_3_VERSION) == 1;
        if is_made {
            return session;
        }
        ffi::SSL_SESSION_free(session);
    }
    ptr::null_mut()
}

unsafe extern "C" fn asked(
    ssl: *mut ffi::SSL,
    identity: *const u8,
    length: usize,
    out: *mut *mut ffi::SSL_SESSION,
) -> c_int {
    // SAFETY: OpenSSL calls this with a connection that lives, an identity of so many bytes, and a place.
    let (ssl, identity) = unsafe {
        (
            SslRef::from_ptr(ssl),
            std::slice::from_raw_parts(identity, length),
        )
    };
    let found = key_of(ssl).filter(|psk| psk.identity.as_bytes() == identity);
    let made = found.map_or(ptr::null_mut(), |found| session(ssl, found));
    // SAFETY: OpenSSL calls this with a place. No session says that another identity was selected, which is
    // no error.
    unsafe { *out = made };
    1
}

unsafe extern "C" fn offered(
    ssl: *mut ffi::SSL,
    hash: *const ffi::EVP_MD,
    identity: *mut *const u8,
    length: *mut usize,
    out: *mut *mut ffi::SSL_SESSION,
) -> c_int {
    // SAFETY: OpenSSL calls this with a connection that lives, and places.
    let ssl = unsafe { SslRef::from_ptr(ssl) };
    // After a HelloRetryRequest the hash function is fixed.
    let fits = |key: &&Psk| {
        // SAFETY: OpenSSL passes null or a digest that it owns, and the call only reads its size.
        hash.is_null() || unsafe { ffi::EVP_MD_get_size(hash) } == key.hash.length() as c_int
    };
    let key = key_of(ssl).filter(fits);
    let made = key.map_or(ptr::null_mut(), |key| session(ssl, key));
    // SAFETY: OpenSSL passes null or a digest that it owns, and the call only reads its size; the identity
    // lives as long as the connection, and is not changed.
    unsafe {
        *out = made;
        if let Some(key) = key.filter(|_| !made.is_null()) {
            *identity = key.identity.as_ptr();
            *length = key.identity.len();
        }
    }
    1
}
