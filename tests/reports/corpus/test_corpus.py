"""Files that users of other readers reported, as documents of a corpus. Each case has the report's
repository and number; what the reporters wrote is in their words there, the inputs are ours."""

import bz2
import gzip
import io
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
import zstandard
from pyarrow import parquet

from engine.data import corpus_files
from engine.data.corpus_files import LeftOut, Read
from engine.data.lab_texts import BadText

MARK = b"\xef\xbb\xbf"
TEXTS = ("the ferry leaves", "and comes back")
LINES = b"".join(json.dumps({"text": text}).encode() + b"\n" for text in TEXTS)


class Case(NamedTuple):
    name: str  # of the file
    data: bytes
    right: tuple[str, ...] | str  # texts and reasons for which a document is left out, or a refusal
    format: str = "jsonl"


def long(window: int) -> bytes:
    """LINES as `zstd --long` writes them."""
    shape = zstandard.ZstdCompressionParameters(window_log=window, write_content_size=False)
    packer = zstandard.ZstdCompressor(compression_params=shape)
    stream = packer.compressobj()
    return stream.compress(LINES) + stream.flush()


def rows(kind: pa.DataType, *texts: bytes) -> bytes:
    parquet.write_table(pa.table({"text": pa.array(texts, kind)}), out := io.BytesIO())
    return out.getvalue()


def record(body: bytes, *headers: str, kind: str = "text/html", url: bytes = b"https://e") -> bytes:
    answer = "\r\n".join(["HTTP/1.1 200 OK", f"Content-Type: {kind}", *headers, "", ""])
    payload = answer.encode() + body
    head = b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: %s\r\n" % url
    head += b"Content-Type: application/http; msgtype=response\r\nContent-Length: %d\r\n\r\n"
    return head % len(payload) + payload + b"\r\n\r\n"


def archive(*records: bytes) -> bytes:
    """A web archive with these records and one whole page after them."""
    return b"".join([*records, record(b"<p>next")])


def brotli(data: bytes) -> bytes:
    from fastwarc.stream_io import BrotliWriter

    with BrotliWriter(out := io.BytesIO()) as writer:
        writer.write(data)
    return out.getvalue()


PAGE = "<p>The ferry leaves at seven."
GONE = "<with a body that cannot be unpacked>"


def sent(way: str, pack: Callable[[bytes], bytes]) -> Case:
    """An archive with a page that was sent so."""
    page = record(pack(PAGE.encode()), f"Content-Encoding: {way}")
    return Case("a.warc.gz", gzip.compress(archive(page)), (PAGE, "<p>next"), "warc")


def page(text: str, encoding: str, label: str | None, stray: bytes = b"") -> Case:
    """A page in this encoding, which calls it by this label."""
    head = "<html>" if label is None else f'<html><meta charset="{label}">'
    right = f"{head}<p>{text}" + ("\ufffd" if stray else "") + " end"
    data = f"{head}<p>{text}".encode(encoding) + stray + " end".encode(encoding)
    return Case("a.html", data, (right,), "html")


THAI, TURKISH = "เรือข้ามฟากออกทุกวัน “เช้า” ", "Feribot günde üç kez kalkıyor, çok güzel, şimdi "
CHINESE, KOREAN = "渡轮每天三班，早上八点开出。", "배는 하루에 세 번 떠납니다 똠방각하 "
JAPANESE = "港の案内。フェリーは毎日三回出ます。①髙"
PLAIN = "港の案内。フェリーは毎日三回出ます。"

CASES = {
    # compressed files
    "huggingface/datasets#5197": Case("a.jsonl.zst", long(31), TEXTS),
    "indygreg/python-zstandard#157": Case("a.jsonl.zst", long(30), TEXTS),
    "facebook/zstd#887": Case("a.jsonl.zst", long(28), TEXTS),
    "ArthurHeitmann/arctic_shift#19": Case("a.jsonl.zst", long(31) + long(31), TEXTS * 2),
    "ClickHouse/ClickHouse#35693": Case("a.jsonl.zst", long(31)[:-9], "a.jsonl.zst cannot be read"),
    "pauldmccarthy/indexed_gzip#69": Case("a.jsonl.gz", gzip.compress(LINES) + b"\0" * 9, TEXTS),
    "onekey-sec/unblob#314": Case("a.jsonl.gz", gzip.compress(LINES) + b"\0" * 70_000, TEXTS),
    "log2timeline/dfvfs#570": Case("a.jsonl.gz", gzip.compress(LINES) * 2 + b"\0", TEXTS * 2),
    "libarchive/libarchive#643": Case(
        "a.jsonl.gz", gzip.compress(LINES) + b"junk", "a.jsonl.gz cannot be read: Not a gzipped"
    ),
    "wbolster/jsonlines#69": Case("a.jsonl.bz2", bz2.compress(LINES) * 2, TEXTS * 2),
    # byte order marks
    "huggingface/datasets#8241": Case("a.jsonl", MARK + LINES, TEXTS),
    "infiniflow/ragflow#19179": Case("a.jsonl.gz", gzip.compress(MARK + LINES), TEXTS),
    "wbolster/jsonlines#68": Case("a.jsonl", MARK + LINES + MARK + LINES, TEXTS * 2),
    "huggingface/datasets#8243": Case(
        "a.jsonl", "\ufeff".encode("utf-16-le") + LINES.decode().encode("utf-16-le"), "is UTF-16"
    ),
    # binary columns
    "apache/spark#1855": Case("a.parquet", rows(pa.binary(), "été".encode()), ("été",), "parquet"),
    "apache/druid#3381": Case("a.parquet", rows(pa.large_binary(), b"a"), ("a",), "parquet"),
    "NVIDIA/cudf-spark#4040": Case(
        "a.parquet", rows(pa.binary(), b"a", b"\xff\xfe\xfd"), ("a", "<not UTF-8>"), "parquet"
    ),
    "apache/arrow#34614": Case("a.parquet", rows(pa.binary(4), b"abcd"), ("abcd",), "parquet"),
    # encodings in the bytes of ASCII
    "misskey-dev/summaly#40": page(PLAIN, "iso2022_jp", "iso-2022-jp"),
    "misskey-dev/summaly#39": page(PLAIN, "iso2022_jp", None),
    "vgmdb/tracker#367": Case(
        "a.warc",
        archive(record(PLAIN.encode("iso2022_jp"), kind="text/html; charset=ISO-2022-JP")),
        (PLAIN, "<p>next"),
        "warc",
    ),
    "tox-dev/turbohtml#78": page("배는 하루에 세 번", "iso2022_kr", "iso-2022-kr"),
    # encodings as the web means them
    "chardet/chardet#33": page(CHINESE + "鎔", "gb18030", "gb2312"),
    "tox-dev/turbohtml#99": page(CHINESE + "\x80", "gb18030", "gbk"),
    "mitmproxy/mitmproxy#3150": page(CHINESE, "gb18030", "GB2312", stray=b"\xff"),
    "mikel/mail#504": page(CHINESE * 4, "gb18030", None),
    "code4craft/webmagic#643": page(JAPANESE, "cp932", "Shift_JIS"),
    "fhamborg/news-please#198": page("“Café” – 5 € ", "cp1252", "iso-8859-1"),
    "tox-dev/turbohtml#424": page(TURKISH, "cp1254", "iso-8859-9"),
    "tox-dev/turbohtml#121": page(THAI, "cp874", "tis-620"),
    "tox-dev/turbohtml#54": page(KOREAN, "cp949", "euc-kr"),
    "chfoo/warcat#12": page("é" * 40, "utf-8", "utf-8", stray=b"\xff"),
    # answers that were sent compressed
    "webrecorder/warcio#73": sent("br", brotli),
    "iipc/jwarc#98": sent("zstd", zstandard.compress),
    "webrecorder/wabac.js#191": sent("gzip, br", lambda body: brotli(gzip.compress(body))),
    "iipc/jwarc#98, x-gzip": sent("x-gzip", gzip.compress),
    "archivesunleashed/aut#493": sent("deflate", lambda body: zlib.compress(body)[2:-4]),
    "bitextor/warc2text#68": sent("gzip", lambda body: body),
    "chfoo/warcat-rs#9": Case(
        "a.warc",
        archive(*(record(b"\x1f\x8b broken", f"Content-Encoding: {way}") for way in ("br", "zip"))),
        (GONE, GONE, "<p>next"),
        "warc",
    ),
    "archivesunleashed/aut#267": Case(
        "a.warc",
        archive(record(gzip.compress(PAGE.encode() * 99)[:-9], "Content-Encoding: gzip")),
        (GONE, "<p>next"),
        "warc",
    ),
    "iipc/jwarc#86": Case(
        "a.warc",
        archive(record(b"<p>a", url=b"https://e/\x08\xc3\xff")),
        ("<p>a", "<p>next"),
        "warc",
    ),
    "commoncrawl/news-crawl#11": Case(
        "a.warc", archive(record(b"<p>a")[:-4]), ("<p>a", "<p>next"), "warc"
    ),
    "machawk1/warcreate#122": Case(
        "a.warc",
        archive(record(b"<p>a" * 20).replace(b"Length: 124", b"Length: 104")),
        "a.warc is damaged, or no WARC file",
        "warc",
    ),
}


@pytest.mark.parametrize("report", CASES)
def test_a_file_is_read_as_its_writer_meant_it_or_refused_in_words(
    tmp_path: Path, report: str
) -> None:
    case = CASES[report]
    path = tmp_path / case.name
    path.write_bytes(case.data)
    how = Read(case.format, "c", "MIT")
    if isinstance(case.right, str):
        with pytest.raises(BadText) as refused:
            list(corpus_files.read(path, case.name, how))
        assert case.right in str(refused.value)
        return
    items = list(corpus_files.read(path, case.name, how))
    found = [f"<{item.why}>" if isinstance(item, LeftOut) else item["text"] for item in items]
    assert found == list(case.right)
