//! Rows of the reference vectors, decoded bit for bit.
//!
//! Bytes and values were taken from vectors made with the colibri v1.7.0 kernels. Those kernels
//! return sums, in which a minus zero turns into zero, so zeros are compared without their sign.

use super::{BlockScale, Format, View};

struct Golden {
    source: &'static str,
    format: Format,
    cols: usize,
    /// Codes of one row, hexadecimal.
    data: &'static str,
    /// Scales of that row, hexadecimal.
    scales: &'static str,
    /// Bits of the first four values.
    first: [u32; 4],
    /// FNV-1a over the little-endian bits of the whole row.
    hash: u64,
}

const ROWS: [Golden; 5] = [
    Golden {
        source: "fmt1 b row 3",
        format: Format::Int8Row,
        cols: 129,
        data: "\
                d30821f549d1571f28e931d301b101cf4e8bf30b3119b4b80ea11a10c224d23dc621022c14fdefd9\
                fb1a1e3aed352db84c1621fbf43fc7f8d91900080a062e09a5f309d90ca96aefe42a0026f9c528d0\
                20fb0a21ebd9f80723dd22a5d9b4383bb7b21626b7e2010e4821f1e8a67f13e4b71509e80c14d410\
                b4e23f3b0313ddf400",
        scales: "ded8da39",
        first: [0xBC99_E07C, 0x3B5A_D8DE, 0x3C61_AFA5, 0xBB96_7519],
        hash: 0x7269_013E_3F6D_4A63,
    },
    Golden {
        source: "fmt2 b row 4",
        format: Format::Int4Row,
        cols: 131,
        data: "\
                889888889788978878888997889f7897877988898788878888988888988889889888989998889799\
                9889898778898898798989988978888778879888888878888709",
        scales: "0912f43c",
        first: [0x0000_0000, 0x0000_0000, 0x0000_0000, 0x3CF4_1209],
        hash: 0xA9AC_F78C_3AFC_CF43,
    },
    Golden {
        source: "fmt4 b row 2",
        format: Format::Int4Grouped { group: 48 },
        cols: 200,
        data: "\
                787a98988877879f769778879878879798888878788a89a786af73ac66a9889e59575965c97c8bab\
                7858987ab6ad86bb8888889888888898891888888877888888888988888878889b6a893b77785999\
                ab7ab89788b768988575ca8457d82f7bab985891",
        scales: "b270bc37d73709374e90693811cae936c0c32b37",
        first: [0x0000_0000, 0xB7BC_70B2, 0x383C_70B2, 0xB7BC_70B2],
        hash: 0xD783_CBA0_4232_54B1,
    },
    Golden {
        source: "fmt7 b row 0 (exponents 1, 250, 0)",
        format: Format::Mxfp4,
        cols: 160,
        data: "\
                2480bd11848933e127d640dcd061324dac9dac369e49596be0a597fd9e063ac8b346e4194054889c\
                a2310a688d6c98c39ea6ed32293b930f9d253355be4fd131d6bd8bbe61ccf43a00d31bf80064855f",
        scales: "01fa007c66",
        first: [0x0100_0000, 0x0080_0000, 0x0000_0000, 0x0000_0000],
        hash: 0x1949_F3DA_7004_9840,
    },
    Golden {
        source: "fmt8 b row 129",
        format: Format::Fp8Block { scale: BlockScale::F32 },
        cols: 200,
        data: "\
                f6ea59715fecec61d260f3f25eeceaea69f3ebe3e37465f068eb756df6e453f0eb78f1f26f4d6863\
                e85e63f36d6d757af17ef75c6be96976f06bfaf2eaedf2f27aeaf6f4695c745cdaf0e2795ad6ef5c\
                f1e4dee96c74e64bfbf35fed5960f279e26769d87a6be469786cf3dd72df71e69972706ef75edcef\
                f4737471d8795e65766cdad1f5ed68f273fa7a6af85ee2f26e77e176607257eb76526ef2e15deff1\
                f6696f646f70f56fd450687267f4f056ee71e6d8cfe1eb62f46eea67616ade65e5f176f06075f071",
        scales: "83a1103999e80f39",
        first: [0xBCFD_1AA5, 0xBC34_C9E4, 0x3B22_B5B3, 0x3CA2_B5B3],
        hash: 0x69E8_B101_6291_16B9,
    },
];

fn bytes(hex: &str) -> Vec<u8> {
    hex.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn fnv(values: &[f32]) -> u64 {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3))
}

#[test]
fn reference_rows_decode_exactly_at_any_alignment() {
    for golden in ROWS {
        let source = golden.source;
        let (data, scales) = (bytes(golden.data), bytes(golden.scales));
        for shift in 0..4 {
            let mut shifted = vec![0xEE; shift];
            shifted.extend(&data);
            let mut shifted_scales = vec![0xEE; shift];
            shifted_scales.extend(&scales);
            let (data, scales) = (&shifted[shift..], &shifted_scales[shift..]);
            let view = View::new(golden.format, 1, golden.cols, data, scales).unwrap();
            let mut values = vec![0.0; golden.cols];
            view.decode_row(0, &mut values);
            values.iter_mut().for_each(|value| *value += 0.0);
            let first: Vec<u32> = values[..4].iter().map(|value| value.to_bits()).collect();
            assert_eq!(first, golden.first, "{source}");
            assert_eq!(fnv(&values), golden.hash, "{source}");
        }
    }
}
