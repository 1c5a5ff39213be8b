//! What the client must refuse, and the alert that the server then gets.

mod bytes;
mod contents;
mod order;

use std::sync::Arc;

use tlsdyno_tls::{Alert, Config, Effort, Error, Group, Session, Suite};

use crate::harness::{Caller, KeyKind, Server, View, config, connect, narrow, pattern, talk_along};
use crate::meddler::{Meddler, Piece};
use crate::openssl_server::OpensslContext;

const SERVER_HELLO: u8 = 2;
const NEW_SESSION_TICKET: u8 = 4;
const ENCRYPTED_EXTENSIONS: u8 = 8;
const CERTIFICATE: u8 = 11;
const SERVER_KEY_EXCHANGE: u8 = 12;
const SERVER_HELLO_DONE: u8 = 14;
const CERTIFICATE_VERIFY: u8 = 15;
const FINISHED: u8 = 20;

/// One suite on both ends.
struct Scene {
    suite: Suite,
    context: OpensslContext,
    config: Arc<Config>,
    session: Option<Session>,
}

const TLS13: Suite = Suite::Tls13Aes128Gcm;
const TLS12: Suite = Suite::EcdheEcdsaAes128Gcm;

impl Scene {
    fn new(suite: Suite, effort: Effort) -> Scene {
        Scene {
            suite,
            context: OpensslContext::narrow(KeyKind::P256, suite, Group::P256, |_| ()),
            config: config(narrow(suite, Group::P256, effort)),
            session: None,
        }
    }

    fn resumed(suite: Suite, effort: Effort) -> Scene {
        let mut scene = Scene::new(suite, effort);
        scene.session = connect(&scene.config, None, &mut scene.context.server()).taken.sessions.pop();
        assert!(scene.session.is_some());
        scene
    }

    /// A handshake, a request and its answer, with the server's records changed by `edit`. The server's end is given
    /// too, since the alert must reach it.
    fn play(&self, edit: &mut dyn FnMut(&Piece) -> Vec<Piece>) -> (Result<Caller, Error>, View) {
        let mut meddler = Meddler::new(self.suite, true, &self.context.key_log);
        self.play_along(&mut |bytes| vec![meddler.pass(&bytes, edit)])
    }

    fn play_along(&self, way: &mut dyn FnMut(Vec<u8>) -> Vec<Vec<u8>>) -> (Result<Caller, Error>, View) {
        let mut server = self.context.server();
        let mut caller = Caller::new(&self.config, self.session.clone());
        let result = talk_along(&mut caller, &mut server, way).and_then(|()| {
            if caller.client.is_connected() {
                caller.request(300);
                talk_along(&mut caller, &mut server, way)?;
            }
            Ok(())
        });
        (result.map(|()| caller), server.view())
    }

    /// Expects this error, and its alert at the server.
    #[track_caller]
    fn refuses(&self, expected: &Error, edit: &mut dyn FnMut(&Piece) -> Vec<Piece>) {
        let (result, view) = self.play(edit);
        let error = result.map(|_| ()).expect_err("the client refuses");
        assert_eq!(error, *expected);
        assert_eq!(view.alert, expected.alert().map(|alert| alert.0), "{view:?}");
    }

    /// Expects some error with this alert.
    #[track_caller]
    fn refuses_with(&self, alert: Alert, edit: &mut dyn FnMut(&Piece) -> Vec<Piece>) -> Error {
        let (result, view) = self.play(edit);
        let error = result.map(|_| ()).expect_err("the client refuses");
        assert_eq!(error.alert(), Some(alert), "{error}");
        assert_eq!(view.alert, Some(alert.0), "{error} {view:?}");
        error
    }
}

/// Changes the pieces that begin with this handshake message.
fn at(message: u8, mut change: impl FnMut(&mut Vec<u8>)) -> impl FnMut(&Piece) -> Vec<Piece> {
    replace(message, move |piece| {
        let mut content = piece.content.clone();
        change(&mut content);
        vec![piece.with(content)]
    })
}

/// Puts other pieces in the place of those that begin with this handshake message.
fn replace(message: u8, mut change: impl FnMut(&Piece) -> Vec<Piece>) -> impl FnMut(&Piece) -> Vec<Piece> {
    move |piece| {
        if piece.message() == Some(message) { change(piece) } else { vec![piece.clone()] }
    }
}

#[allow(clippy::ptr_arg)] // What `at` calls.
fn flip_last(content: &mut Vec<u8>) {
    *content.last_mut().unwrap() ^= 1;
}

fn handshake(kind: u8, body: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = (body.len() as u32).to_be_bytes();
    [&[kind], &length[..], body].concat()
}

#[test]
fn nothing_changed_is_accepted() {
    for suite in [TLS13, TLS12, Suite::EcdheEcdsaAes128Sha] {
        for scene in [Scene::new(suite, Effort::Honest), Scene::resumed(suite, Effort::Honest)] {
            let mut messages = Vec::new();
            let (result, _) = scene.play(&mut |piece| {
                messages.extend(piece.message());
                vec![piece.clone()]
            });
            let caller = result.unwrap();
            assert!(caller.taken.data == pattern(300));
            assert_eq!(caller.handshake().resumed.is_some(), scene.session.is_some());
            assert!(messages.contains(&FINISHED) && messages.contains(&SERVER_HELLO), "{messages:?}");
        }
    }
}
