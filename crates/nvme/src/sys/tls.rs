//! Functions of OpenSSL that the crate `openssl` does not have: external PSKs in TLS 1.3 with any hash
//! function (SSL_CTX_set_psk_find_session_callback(3), SSL_CTX_set_psk_use_session_callback(3)).

use std::ffi::{c_int, c_uint};
use std::ptr;
use std::sync::OnceLock;

use foreign_types::ForeignTypeRef;
use openssl::error::ErrorStack;
use openssl::ex_data::Index;
use openssl::ssl::{ClientHelloResponse, Ssl, SslAlert, SslContextBuilder, SslRef};
use openssl_sys as ffi;

use crate::auth::Hash;
use crate::tls::Psk;

/// A function that finds the PSK of an identity.
pub(crate) type Find = Box<dyn Fn(&str) -> Option<Psk> + Send + Sync>;

type FindSession = unsafe extern "C" fn(*mut ffi::SSL, *const u8, usize, *mut *mut ffi::SSL_SESSION) -> c_int;
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
    fn SSL_SESSION_new() -> *mut ffi::SSL_SESSION;
    fn SSL_SESSION_set1_master_key(session: *mut ffi::SSL_SESSION, key: *const u8, length: usize) -> c_int;
    fn SSL_SESSION_set_cipher(session: *mut ffi::SSL_SESSION, cipher: *const ffi::SSL_CIPHER) -> c_int;
    fn SSL_SESSION_set_protocol_version(session: *mut ffi::SSL_SESSION, version: c_int) -> c_int;
    fn SSL_CIPHER_find(ssl: *mut ffi::SSL, number: *const u8) -> *const ffi::SSL_CIPHER;
}

/// The extension `pre_shared_key` (RFC 8446, 4.2.11).
const PRE_SHARED_KEY: c_uint = 41;

/// The cipher suite with a hash function: its name and its number (RFC 8446, B.4).
pub(crate) fn cipher(hash: Hash) -> (&'static str, [u8; 2]) {
    match hash {
        Hash::Sha384 | Hash::Sha512 => ("TLS_AES_256_GCM_SHA384", [0x13, 0x02]),
        Hash::Sha256 => ("TLS_AES_128_GCM_SHA256", [0x13, 0x01]),
    }
}

type Places = (Index<Ssl, Find>, Index<Ssl, Psk>);

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
        ssl.set_ex_data(place, find);
    }
}

/// Configures a client: it offers the PSK of [`use_key`].
pub(crate) fn offer(context: &mut SslContextBuilder) {
    // SAFETY: the context lives; the function keeps to what OpenSSL expects of it.
    unsafe { SSL_CTX_set_psk_use_session_callback(context.as_ptr(), Some(offered)) };
}

/// Configures a server: it uses the PSK that [`look_for_key`] finds. OpenSSL selects the cipher suite before
/// it looks up the PSK, so only the suite of that PSK is offered for selection.
pub(crate) fn ask(context: &mut SslContextBuilder) {
    // SAFETY: the context lives, and the callback is a function of the type that OpenSSL calls.
    unsafe { SSL_CTX_set_psk_find_session_callback(context.as_ptr(), Some(asked)) };
    context.set_client_hello_callback(|ssl: &mut SslRef, _: &mut SslAlert| {
        if let Some(found) = first_known(ssl) {
            ssl.set_ciphersuites(cipher(found.hash).0)?;
        }
        Ok::<_, ErrorStack>(ClientHelloResponse::SUCCESS)
    });
}

fn find(ssl: &SslRef, identity: &[u8]) -> Option<Psk> {
    let find = ssl.ex_data(places()?.0)?;
    find(std::str::from_utf8(identity).ok()?)
}

/// The first PSK among the identities in a ClientHello that the server knows.
fn first_known(ssl: &SslRef) -> Option<Psk> {
    let (mut bytes, mut length) = (ptr::null(), 0);
    // SAFETY: the connection lives; what is found lives as long as the ClientHello, which is looked at now.
    let extension = unsafe {
        match ffi::SSL_client_hello_get0_ext(ssl.as_ptr(), PRE_SHARED_KEY, &mut bytes, &mut length) {
            1 if !bytes.is_null() => std::slice::from_raw_parts(bytes, length),
            _ => return None,
        }
    };
    let (list, _) = split(extension)?;
    let mut rest = list;
    while !rest.is_empty() {
        let (identity, after) = split(rest)?;
        if let Some(found) = find(ssl, identity) {
            return Some(found);
        }
        // The obfuscated ticket age, which has no meaning for external PSKs.
        rest = after.get(4..)?;
    }
    None
}

/// Bytes behind a length field, and the rest.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_at_checked(2)?;
    rest.split_at_checked(usize::from(u16::from_be_bytes([length[0], length[1]])))
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
    let (ssl, identity) =
        unsafe { (SslRef::from_ptr_mut(ssl), std::slice::from_raw_parts(identity, length)) };
    let found = find(ssl, identity);
    let made = found.as_ref().map_or(ptr::null_mut(), |found| session(ssl, found));
    if let Some(found) = found.filter(|_| !made.is_null()) {
        use_key(ssl, found);
    }
    // SAFETY: OpenSSL calls this with a connection that lives, an identity of so many bytes, and a place. .
    // No session says that the identity is not known, which is no error here.
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
    // SAFETY: OpenSSL passes null or a digest that it owns, and the call only reads its size.
    let fits =
        |key: &&Psk| hash.is_null() || unsafe { ffi::EVP_MD_get_size(hash) } == key.hash.length() as c_int;
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
