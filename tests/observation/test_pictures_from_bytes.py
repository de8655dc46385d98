"""Files as clients and drivers send them, from their bytes on: the pixels are Pillow's, or image_transport's on topics.

Guards: colours shown that are transparent; a photograph on its side; 16 bits read as 8; a mosaic or a depth image taken
for a grey picture.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from auras_ros.observation import REQUEST_FILES, FaultName, ObservationError, decode_compressed, decode_raw
from auras_ros.observation.image_files import sent_encoding
from tests.observation.conftest import noise, png_chunk

PIL = pytest.importorskip("PIL")
from PIL import Image, ImageOps  # noqa: E402

SIZE = (23, 31)  # height, width: neither even nor equal


def saved(image: Any, form: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def reference(data: bytes) -> NDArray[np.uint8]:
    """The first picture, upright and on white: what transformers makes of it, with Pillow alone."""
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    if "A" in image.getbands() or image.info.get("transparency") is not None:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, (255, 255, 255, 255)), image)
    return np.asarray(image.convert("RGB"))


def read(data: bytes) -> NDArray[np.uint8]:
    return decode_compressed(data, 100_000, rules=REQUEST_FILES)


def grey(levels: int = 256) -> Any:
    return Image.fromarray((noise(*SIZE, channels=1)[:, :, 0].astype(int) % levels).astype(np.uint8))


def palette(colours: int = 40) -> Any:
    image = Image.fromarray(noise(*SIZE, channels=1)[:, :, 0] % colours).convert("P")
    image.putpalette(noise(1, colours, seed=1).tobytes())
    return image


def with_alpha() -> Any:
    return Image.fromarray(noise(*SIZE, channels=4), "RGBA")


def one_colour() -> Any:
    image = Image.fromarray(noise(*SIZE))
    image.paste((255, 0, 0), (4, 4, 9, 12))
    return image


def png(rows: NDArray[Any], kind: int, bits: int, *chunks: bytes) -> bytes:
    """A PNG of samples [height, width * samples], uint8 or big-endian uint16, of this colour type."""
    samples = {0: 1, 2: 3, 4: 2, 6: 4}[kind]
    body = b"".join(b"\0" + row.tobytes() for row in rows)
    header = struct.pack(">IIBBBBB", rows.shape[1] // samples, len(rows), bits, kind, 0, 0, 0)
    parts = [png_chunk(b"IHDR", header), *chunks, png_chunk(b"IDAT", zlib.compress(body)), png_chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def wide(samples: int) -> NDArray[Any]:
    """Rows of 16-bit samples, big-endian as in a PNG."""
    height, width = SIZE
    return np.random.default_rng(samples).integers(0, 65536, (height, width * samples)).astype(">u2")


def transparent_files() -> Iterator[tuple[str, bytes]]:
    yield "RGBA", saved(with_alpha())
    yield "LA", saved(Image.merge("LA", (grey(), grey(200))))
    yield "RGB and a transparent colour", saved(one_colour(), transparency=(255, 0, 0))
    yield "grey and a transparent level", saved(grey(40), transparency=7)
    yield "black and white, white transparent", saved(grey(2).point(lambda level: 255 * level, "1"), transparency=255)
    yield "palette, a transparent entry", saved(palette(), transparency=3)
    yield "palette, entries of any opacity", saved(palette(), transparency=bytes(range(0, 200, 5)))
    yield "palette of 2 bits, a transparent entry", saved(palette(3), transparency=1)
    yield "RGBA of 16 bits", png(wide(4), 6, 16)
    yield "grey and alpha of 16 bits", png(wide(2), 4, 16)
    yield "WebP, lossless", saved(with_alpha(), "WEBP", lossless=True, exact=True)
    yield "WebP, lossy", saved(with_alpha(), "WEBP", quality=80)


def opaque_files() -> Iterator[tuple[str, bytes]]:
    yield "1", saved(grey(2).point(lambda level: 255 * level, "1"))
    yield "L", saved(grey())
    yield "P", saved(palette())
    yield "P of 1 bit", saved(palette(2))
    yield "P of 4 bits", saved(palette(13))
    yield "RGB", saved(one_colour())
    yield "RGB of 16 bits", png(wide(3), 2, 16)
    yield "JPEG", saved(one_colour(), "JPEG", quality=90)
    yield "grey JPEG", saved(grey(), "JPEG")
    yield "progressive JPEG, 4:4:4", saved(one_colour(), "JPEG", progressive=True, subsampling=0)
    yield "opaque RGBA", saved(Image.fromarray(np.dstack([noise(*SIZE), np.full((*SIZE, 1), 255, np.uint8)])))


FILES = dict([*transparent_files(), *opaque_files()])


@pytest.mark.parametrize("name", FILES)
def test_the_pixels_of_a_request_are_pillows(name: str) -> None:
    image = read(FILES[name])
    assert image.flags.c_contiguous
    np.testing.assert_array_equal(image, reference(FILES[name]))


@pytest.mark.parametrize("name", FILES)
def test_they_are_those_of_transformers(name: str) -> None:
    transforms = pytest.importorskip("transformers.image_transforms")
    theirs = transforms.convert_to_rgb(Image.open(io.BytesIO(FILES[name])), return_numpy=True)
    np.testing.assert_array_equal(read(FILES[name]), theirs)


def test_every_colour_of_every_opacity_is_laid_on_white_as_by_pillow() -> None:
    values, opacities = np.meshgrid(np.arange(256, dtype=np.uint8), np.arange(256, dtype=np.uint8))
    data = saved(Image.fromarray(np.dstack([values, values, values, opacities]), "RGBA"))
    np.testing.assert_array_equal(read(data), reference(data))


def test_hidden_colours_are_never_seen() -> None:
    """A red that no viewer shows."""
    pixels = np.zeros((*SIZE, 4), np.uint8)
    pixels[..., 0] = 255
    assert (read(saved(Image.fromarray(pixels))) == 255).all()


EXIF_XMP = '<x:xmpmeta xmlns:tiff="http://ns.adobe.com/tiff/1.0/"><rdf:Description tiff:Orientation="{}"/></x:xmpmeta>'


def turned_files(turned: int) -> Iterator[tuple[str, bytes]]:
    exif = Image.Exif()
    exif[0x0110] = "a camera"  # an entry before it
    exif[0x0112] = turned
    for form, options in (("JPEG", {"quality": 95}), ("PNG", {}), ("WEBP", {"lossless": True})):
        yield f"{form}, EXIF", saved(one_colour(), form, exif=exif, **options)
    xmp = EXIF_XMP.format(turned).encode()
    for form in ("JPEG", "WEBP"):
        yield f"{form}, XMP", saved(one_colour(), form, xmp=xmp)
    plain = saved(one_colour())
    yield "PNG, XMP", plain[:33] + png_chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp) + plain[33:]
    yield "transparent PNG", saved(with_alpha(), exif=exif)
    yield "grey PNG with a transparent level", saved(grey(40), exif=exif, transparency=7)


@pytest.mark.parametrize("turned", range(1, 9))
def test_a_photograph_is_upright(turned: int) -> None:
    for name, data in turned_files(turned):
        image = read(data)
        assert image.shape[:2] == (SIZE if turned < 5 else SIZE[::-1]), name
        np.testing.assert_array_equal(image, reference(data), err_msg=name)


def test_an_orientation_that_is_none_is_ignored() -> None:
    for block in (
        b"MM\0*\0\0\0\x08",
        b"II*\0\xff\xff\xff\xff",
        b"MM",
        b"",
        b"MM\0*\0\0\0\x08\xff\xff" + b"\1\x12" * 40,
    ):
        plain = saved(one_colour())
        data = plain[:33] + png_chunk(b"eXIf", block) + plain[33:]
        np.testing.assert_array_equal(read(data), np.asarray(one_colour()))


def frames() -> list[Any]:
    return [Image.fromarray(noise(*SIZE, seed=seed, channels=4), "RGBA") for seed in range(3)]


@pytest.mark.parametrize("form", ["PNG", "WEBP"])
def test_of_an_animation_the_first_picture_is_seen(form: str) -> None:
    first, *others = frames()
    options = {"lossless": True, "exact": True} if form == "WEBP" else {}
    data = saved(first, form, save_all=True, append_images=others, duration=40, **options)
    assert Image.open(io.BytesIO(data)).n_frames == 3
    np.testing.assert_array_equal(read(data), reference(data))


def test_16_bits_of_grey_are_opencvs() -> None:
    """Pillow makes white of every level above 255."""
    data = png(wide(1), 0, 16)
    np.testing.assert_array_equal(read(data), cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR))
    np.testing.assert_array_equal(read(data)[..., 0], wide(1) >> 8)


@pytest.mark.parametrize(("kind", "samples"), [(0, 1), (2, 3)])
def test_a_transparent_colour_of_16_bits_is_refused_with_the_remedy(kind: int, samples: int) -> None:
    named = png_chunk(b"tRNS", wide(samples)[0, :samples].tobytes())
    name, _, detail = refusal(png(wide(samples), kind, 16, named), rules=REQUEST_FILES)
    assert name is FaultName.BAD_ENCODING
    assert "save it with an alpha channel" in detail


def test_cmyk_is_refused_with_the_remedy() -> None:
    name, _, detail = refusal(saved(Image.new("CMYK", SIZE), "JPEG"), rules=REQUEST_FILES)
    assert name is FaultName.BAD_ENCODING
    assert "CMYK is not taken: save it as RGB" in detail


def refusal(data: bytes, **options: Any) -> tuple[FaultName, str, str]:
    with pytest.raises(ObservationError) as caught:
        decode_compressed(data, 100_000, **options)
    return caught.value.fault.name, caught.value.fault.source, caught.value.fault.detail


# -- topics: what image_transport compresses


def nearest(samples: NDArray[Any]) -> NDArray[np.uint8]:
    return np.round(samples.astype(np.float64) * 255 / 65535).astype(np.uint8)


def test_16_bits_of_a_camera_are_those_of_its_raw_topic() -> None:
    rows = wide(1)
    height, width = SIZE
    raw = decode_raw(height=height, width=width, encoding="mono16", step=2 * width, data=rows.astype("<u2").tobytes())
    image = decode_compressed(png(rows, 0, 16), encoding=sent_encoding("mono16; png compressed "))
    np.testing.assert_array_equal(image, raw)
    colour = wide(3)
    np.testing.assert_array_equal(decode_compressed(png(colour, 2, 16)), nearest(colour).reshape(height, width, 3))


@pytest.mark.parametrize("message_format", ["png", "", "8UC1; png compressed ", "bayer_rggb8; png compressed "])
def test_16_bits_that_may_be_distances_are_refused(message_format: str) -> None:
    name, source, detail = refusal(png(wide(1), 0, 16), encoding=sent_encoding(message_format))
    assert (name, source) == (FaultName.BAD_ENCODING, "format")
    assert "depth" in detail or "bayer_rggb8" in detail


@pytest.mark.parametrize("message_format", ["16UC1; png compressed ", "16UC1; compressedDepth png", "32FC1; x"])
def test_a_compressed_depth_image_is_refused_with_the_reason(message_format: str) -> None:
    with pytest.raises(ObservationError) as caught:
        sent_encoding(message_format)
    assert (caught.value.fault.name, caught.value.fault.source) == (FaultName.BAD_ENCODING, "format")
    assert "depth image" in caught.value.fault.detail


@pytest.mark.parametrize("order", ["rggb", "bggr", "gbrg", "grbg"])
def test_a_compressed_mosaic_is_that_of_its_raw_topic(make: SimpleNamespace, order: str) -> None:
    """image_transport compresses a mosaic as if it were grey, and says so only in the format."""
    height, width = SIZE
    mosaic = make.noise(*SIZE, channels=1)[:, :, 0]
    raw = decode_raw(height=height, width=width, encoding=f"bayer_{order}8", step=width, data=mosaic.tobytes())
    data = png(mosaic, 0, 8)
    encoding = sent_encoding(f"bayer_{order}8; png compressed ")
    np.testing.assert_array_equal(decode_compressed(data, encoding=encoding), raw)
    jpeg = cv2.imencode(".jpg", mosaic)[1].tobytes()
    assert decode_compressed(jpeg, encoding=encoding).shape == (*SIZE, 3)
    colour = make.encode(make.noise(*SIZE), ".png")
    assert refusal(colour, encoding=encoding)[1] == "format"


@pytest.mark.parametrize(
    "message_format", ["jpeg", "png", "", "rgb8; jpeg compressed bgr8", "rgba8; png compressed bgra8"]
)
def test_formats_that_say_nothing_of_a_mosaic_leave_the_file_as_it_is(
    make: SimpleNamespace, message_format: str
) -> None:
    pixels = make.noise(*SIZE)
    data = make.encode(pixels, ".png")
    np.testing.assert_array_equal(decode_compressed(data, encoding=sent_encoding(message_format)), pixels)


def test_alpha_and_orientation_of_a_camera_s_file_have_no_effect() -> None:
    """As in image_transport, which decodes a file as it is, and cv_bridge, which drops alpha."""
    pixels = noise(*SIZE, channels=4)
    exif = Image.Exif()
    exif[0x0112] = 6
    image = decode_compressed(saved(Image.fromarray(pixels), exif=exif))
    np.testing.assert_array_equal(image, pixels[:, :, :3])
