"""Are rates those of data sheets, and unknown where there is none?"""

import pytest
from deepinfer_nvidia.device.peaks import peak_flops


@pytest.mark.parametrize(
    ("model", "tera"),
    [
        ("NVIDIA H200", 989.4),
        ("NVIDIA H100 80GB HBM3", 989.4),
        ("NVIDIA H100 PCIe", 756.0),
        ("NVIDIA H100 NVL", 835.5),
        ("NVIDIA GH200 480GB", 989.4),
        ("NVIDIA B200", 2250.0),
    ],
)
def test_a_listed_device_has_the_dense_rate_of_its_data_sheet(model: str, tera: float) -> None:
    assert peak_flops(model, "bfloat16") == tera * 1e12


def test_eight_bits_are_twice_as_fast_as_sixteen() -> None:
    half, quarter = (peak_flops("NVIDIA H200", form) for form in ("bfloat16", "float8_e4m3fn"))
    assert half is not None
    assert quarter == pytest.approx(2 * half, rel=1e-3)  # data sheets round to a tenth


@pytest.mark.parametrize(
    ("model", "number_format"),
    [("NVIDIA T4", "bfloat16"), ("NVIDIA H200", "mxfp8"), ("", "bfloat16")],
)
def test_what_no_data_sheet_says_is_unknown(model: str, number_format: str) -> None:
    assert peak_flops(model, number_format) is None
