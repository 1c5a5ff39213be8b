//! What a cryptoserver signs: what a handshake of TLS 1.2 or 1.3 asks a server's key for, and nothing else. The whole
//! text is here, not its hash, so that its form can be seen. Whoever has stolen an agent's key can answer handshakes
//! while the theft lasts, and gets no signature that any other protocol or a later handshake would take.

/// RFC 8446, section 4.4.3: what stands before the hash of the transcript.
const SPACES: usize = 64;
const CONTEXT: &[u8] = b"TLS 1.3, server CertificateVerify\0";
/// RFC 5246, section 7.4.3: what is signed with the parameters.
const RANDOMS: usize = 32 + 32;
/// RFC 8422, section 5.4: `named_curve`.
const NAMED_CURVE: u8 = 3;
/// The groups of TLS 1.2 by their numbers, each with the bytes of a share and the first of them where it is fixed.
const GROUPS: [(u16, usize, Option<u8>); 5] =
    [(23, 65, Some(4)), (24, 97, Some(4)), (25, 133, Some(4)), (29, 32, None), (30, 56, None)];

/// In which handshake a text is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// CertificateVerify of TLS 1.3.
    CertificateVerify,
    /// ServerKeyExchange of TLS 1.2 with an elliptic curve.
    ServerKeyExchange,
}

/// The form of what is to be signed with this scheme.
///
/// # Errors
/// It has neither form, or the scheme is not one of that handshake; the text says which.
pub fn of(message: &[u8], scheme: u16) -> Result<Form, &'static str> {
    let (form, schemes): (Form, &[u16]) = if is_certificate_verify(message) {
        (Form::CertificateVerify, &TLS13_SCHEMES)
    } else if is_server_key_exchange(message) {
        (Form::ServerKeyExchange, &TLS12_SCHEMES)
    } else {
        return Err("it is neither the CertificateVerify of TLS 1.3 nor a ServerKeyExchange of TLS 1.2 with a curve");
    };
    if schemes.contains(&scheme) { Ok(form) } else { Err("the signature scheme is not one of that handshake") }
}

/// RFC 8446, section 4.2.3: PSS with SHA-256, -384 and -512, ECDSA on P-256, P-384 and P-521.
const TLS13_SCHEMES: [u16; 6] = [0x0804, 0x0805, 0x0806, 0x0403, 0x0503, 0x0603];
/// The schemes of TLS 1.3, and PKCS #1 with these hashes. Nothing with SHA-1.
const TLS12_SCHEMES: [u16; 9] = [0x0804, 0x0805, 0x0806, 0x0403, 0x0503, 0x0603, 0x0401, 0x0501, 0x0601];

/// Spaces, context and the hash of a transcript by SHA-256 or SHA-384, the only ones of the suites of TLS 1.3.
fn is_certificate_verify(message: &[u8]) -> bool {
    let rest = message.strip_prefix(&[b' '; SPACES][..]).and_then(|rest| rest.strip_prefix(CONTEXT));
    rest.is_some_and(|hash| matches!(hash.len(), 32 | 48))
}

/// Both randoms, the curve and a share of its length.
fn is_server_key_exchange(message: &[u8]) -> bool {
    let Some([kind, high, low, length, share @ ..]) = message.get(RANDOMS..) else { return false };
    let group = u16::from_be_bytes([*high, *low]);
    *kind == NAMED_CURVE
        && usize::from(*length) == share.len()
        && GROUPS.iter().any(|(number, bytes, first)| {
            *number == group && *bytes == share.len() && first.is_none_or(|first| share[0] == first)
        })
}

/// Texts of both forms with a scheme, for tests and fuzzing.
#[doc(hidden)]
pub fn examples() -> Vec<(Vec<u8>, u16)> {
    let verify = |hash: usize| [&[b' '; SPACES][..], CONTEXT, &vec![7; hash]].concat();
    let exchange = |group: u16, first: u8, bytes: usize| {
        let head = [NAMED_CURVE, (group >> 8) as u8, group as u8, bytes as u8, first];
        [&[9; RANDOMS][..], &head, &vec![1; bytes - 1]].concat()
    };
    vec![
        (verify(32), 0x0804),
        (verify(48), 0x0403),
        (exchange(29, 5, 32), 0x0401),
        (exchange(23, 4, 65), 0x0805),
        (exchange(24, 4, 97), 0x0503),
    ]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_of_handshakes_have_their_form() {
        let forms: Vec<_> = examples().iter().map(|(message, scheme)| of(message, *scheme).unwrap()).collect();
        assert_eq!(forms[..2], [Form::CertificateVerify; 2]);
        assert_eq!(forms[2..], [Form::ServerKeyExchange; 3]);
    }

    #[test]
    fn other_texts_and_schemes_are_refused() {
        let client = [&[b' '; 64][..], b"TLS 1.3, client CertificateVerify\0", &[7; 32]].concat();
        let (verify, exchange) = (examples().swap_remove(0).0, examples().swap_remove(2).0);
        let refused = |message: &[u8], scheme| assert!(of(message, scheme).is_err(), "{message:?}");
        refused(&client, 0x0804);
        refused(b"", 0x0804);
        refused(&[0; 32], 0x0804);
        refused(&verify, 0x0401);
        refused(&exchange, 0x0201);
        refused(&exchange, 0x0807);
        for message in [verify, exchange] {
            refused(&message[..message.len() - 1], 0x0804);
            refused(&[&message[..], b"x"].concat(), 0x0804);
        }
        let mut finite_field = [&[9; 64][..], &[1, 0, 29, 32], &[1; 32]].concat();
        refused(&finite_field, 0x0804);
        finite_field[64] = NAMED_CURVE;
        assert!(of(&finite_field, 0x0804).is_ok());
    }

    proptest! {
        /// What a certificate, a CRL, an OCSP response or a token begins with never has the form: it is DER or text.
        #[test]
        fn der_and_text_are_refused(mut bytes in proptest::collection::vec(any::<u8>(), 1..400)) {
            bytes[0] = 0x30;
            // A ServerKeyExchange may begin so, as its randoms are anything; what follows them is not DER's or text's.
            if bytes.len() > RANDOMS && bytes[RANDOMS] == NAMED_CURVE {
                bytes[RANDOMS] = b'a';
            }
            prop_assert!(of(&bytes, 0x0804).is_err());
        }
    }
}
