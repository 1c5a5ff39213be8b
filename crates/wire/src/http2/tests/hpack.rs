use proptest::prelude::*;

use super::super::*;

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fn decoded(decoder: &mut Decoder, block: &[u8]) -> Result<Fields, HpackFault> {
    let mut fields = Vec::new();
    decoder.decode(block, LIST_BYTES_MAX, |name, value| fields.push((name.to_vec(), value.to_vec())))?;
    Ok(fields)
}

fn text(fields: &Fields) -> Vec<String> {
    let line = |(name, value): &(Vec<u8>, Vec<u8>)| {
        format!("{}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
    };
    fields.iter().map(line).collect()
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

/// RFC 7541 section C.6: three responses with Huffman code over a table of 256 bytes, which evicts.
#[test]
fn the_responses_of_the_rfc() {
    let mut decoder = Decoder::new(256);
    assert_eq!(decoded(&mut decoder, &hex("3f e1 01")), Ok(Vec::new()), "a table of 256 bytes");
    let blocks = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7 \
         8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 b335 \
         dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ];
    let [first, second, third] = blocks.map(|block| text(&decoded(&mut decoder, &hex(block)).unwrap()));
    let rest = ["cache-control: private", "date: Mon, 21 Oct 2013 20:13:21 GMT", "location: https://www.example.com"];
    assert_eq!((&first[0][..], &first[1..]), (":status: 302", &rest.map(str::to_owned)[..]));
    assert_eq!((&second[0][..], &second[1..]), (":status: 307", &first[1..]));
    let last = "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1";
    assert_eq!((&third[0][..], &third[4][..], &third[5][..]), (":status: 200", "content-encoding: gzip", last));
}

#[test]
fn what_is_no_block_is_refused() {
    for (block, fault) in [
        ("80", HpackFault::Index),
        ("be", HpackFault::Index),
        ("7f ff ff ff 0f 00", HpackFault::Index),
        ("ff ff ff ff ff 0f", HpackFault::Integer),
        ("ff", HpackFault::Truncated),
        ("48", HpackFault::Truncated),
        ("48 05 32 30", HpackFault::Truncated),
        ("48 81 00", HpackFault::Huffman),
        ("88 20", HpackFault::TableSize),
        ("3f e2 ff 03", HpackFault::TableSize),
    ] {
        assert_eq!(decoded(&mut Decoder::new(65_536), &hex(block)), Err(fault), "{block}");
    }
    // One field of 3,000 bytes, then named again and again: small as it is sent, large as it is meant.
    let mut bomb = vec![0x40, 1, b'x'];
    hpack::put_integer(&mut bomb, 0, 7, 3000);
    bomb.resize(bomb.len() + 3000, b'y');
    bomb.resize(bomb.len() + 1000, 0xbe);
    assert_eq!(decoded(&mut Decoder::new(65_536), &bomb), Err(HpackFault::ListTooLarge));
}

fn head(lines: &[(String, String)]) -> Vec<u8> {
    let lines: String = lines.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("GET /a?b HTTP/1.1\r\nHost: h:8443\r\n{lines}\r\n").into_bytes()
}

#[test]
fn the_second_request_is_indices() {
    let mut encoder = Encoder::default();
    let lines =
        [("User-Agent", "Mozilla/5.0 (X11)"), ("Accept", "*/*"), ("Cookie", "a=1; b=2"), ("Connection", "close")];
    let head = head(&lines.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let (mut first, mut second) = (Vec::new(), Vec::new());
    encoder.request(&head, &mut first);
    encoder.request(&head, &mut second);
    let mut decoder = Decoder::new(TABLE_BYTES_ANNOUNCED);
    let fields = decoded(&mut decoder, &first).unwrap();
    assert_eq!(
        text(&fields),
        [
            ":method: GET",
            ":authority: h:8443",
            ":scheme: https",
            ":path: /a?b",
            "user-agent: Mozilla/5.0 (X11)",
            "accept: */*",
            "cookie: a=1",
            "cookie: b=2"
        ]
    );
    assert_eq!(decoded(&mut decoder, &second).unwrap(), fields);
    // Of the second only the path is spelt out.
    assert_eq!(hex("82 c2 87 04 84 60 7e 38 ff c1 c0 bf be").len(), second.len(), "{second:x?}");
    encoder.set_table_allowed(0);
    encoder.set_table_allowed(100);
    let mut third = Vec::new();
    encoder.request(&head, &mut third);
    assert_eq!(third[..3], hex("20 3f 45"), "the smallest size in between, then the one that holds");
    assert_eq!(decoded(&mut decoder, &third).unwrap(), fields);
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![Just("Accept".to_owned()), Just("X-A".to_owned()), Just("If-None-Match".to_owned()), "[A-Za-z-]{1,9}"]
}

proptest! {
    /// Requests of one connection, over tables of any size, read by another implementation and by ours.
    #[test]
    fn requests_read_back(requests in proptest::collection::vec(
        (proptest::collection::vec((name(), "[ -~]{0,40}"), 0..8), proptest::option::of(0usize..5000)), 1..12)
    ) {
        let (mut encoder, mut ours, mut theirs) =
            (Encoder::default(), Decoder::new(TABLE_BYTES_ANNOUNCED), loona_hpack::Decoder::new());
        theirs.set_max_allowed_table_size(TABLE_BYTES_ANNOUNCED);
        for (lines, table) in requests {
            if let Some(bytes) = table {
                encoder.set_table_allowed(bytes);
            }
            let mut block = Vec::new();
            encoder.request(&head(&lines), &mut block);
            let fields = decoded(&mut ours, &block).unwrap();
            prop_assert_eq!(&fields, &theirs.decode(&block).unwrap());
            let is_kept = |name: &str| {
                let hop_by_hop = ["connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade", "te"];
                !["cookie", "host"].contains(&name) && !hop_by_hop.contains(&name)
            };
            let asked: Fields = lines.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.trim()))
                .filter(|(name, _)| is_kept(name))
                .map(|(name, value)| (name.into_bytes(), value.as_bytes().to_vec())).collect();
            let sent: Fields = fields[4..].iter().filter(|(name, _)| name != b"cookie").cloned().collect();
            prop_assert_eq!(sent, asked);
        }
    }

    /// Blocks of a server, made by another implementation and then damaged: where both understand them, alike.
    #[test]
    fn blocks_are_understood_as_others_do(
        responses in proptest::collection::vec(proptest::collection::vec(("[a-z]{1,6}", "[ -~]{0,30}"), 0..6), 1..8),
        damage in proptest::option::of((0usize..400, any::<u8>())),
    ) {
        let (mut encoder, mut ours, mut theirs) =
            (loona_hpack::Encoder::new(), Decoder::new(TABLE_BYTES_DEFAULT), loona_hpack::Decoder::new());
        for response in responses {
            let fields: Fields =
                response.iter().map(|(name, value)| (name.clone().into(), value.clone().into())).collect();
            let mut block = encoder.encode(fields.iter().map(|(name, value)| (&name[..], &value[..])));
            let Some((at, byte)) = damage.filter(|(at, _)| *at < block.len()) else {
                prop_assert_eq!(decoded(&mut ours, &block).unwrap(), fields);
                let _ = theirs.decode(&block);
                continue;
            };
            block[at] = byte;
            match (decoded(&mut ours, &block), theirs.decode(&block)) {
                (Ok(ours), Ok(theirs)) => prop_assert_eq!(ours, theirs),
                // Theirs lets a table update stand anywhere and knows no limits; ours must not know more than theirs.
                (Err(_), _) => return Ok(()),
                (Ok(ours), Err(theirs)) => prop_assert!(false, "{ours:?} {theirs:?}"),
            }
        }
    }
}
