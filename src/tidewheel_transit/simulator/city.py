"""The city: well-known places of Helsinki with their coordinates, and the lines that are run between them.

The places are real; the lines follow the spirit of the city's network, not its data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

__all__ = ["LINES", "MODES", "PLACES", "Line", "Mode"]

PLACES: Final[Mapping[str, tuple[float, float]]] = MappingProxyType(
    {
        "Arabia": (60.2085, 24.9780),
        "Eira": (60.1563, 24.9385),
        "Espoon keskus": (60.2053, 24.6560),
        "Etelä-Haaga": (60.2140, 24.8960),
        "Hakaniemi": (60.1792, 24.9510),
        "Herttoniemi": (60.1948, 25.0305),
        "Hietalahti": (60.1627, 24.9290),
        "Huopalahti": (60.2183, 24.8935),
        "Ilmala": (60.2080, 24.9205),
        "Itäkeskus": (60.2101, 25.0773),
        "Jakomäki": (60.2620, 25.0790),
        "Jätkäsaari": (60.1568, 24.9145),
        "Kalasatama": (60.1875, 24.9770),
        "Kallio": (60.1845, 24.9500),
        "Kamppi": (60.1689, 24.9316),
        "Kannelmäki": (60.2395, 24.8768),
        "Katajanokka": (60.1670, 24.9680),
        "Kauniainen": (60.2100, 24.7290),
        "Kauppatori": (60.1677, 24.9530),
        "Keilaniemi": (60.1757, 24.8288),
        "Koivusaari": (60.1640, 24.8553),
        "Konala": (60.2370, 24.8460),
        "Kontula": (60.2363, 25.0833),
        "Kulosaari": (60.1873, 25.0075),
        "Kumpula": (60.2045, 24.9640),
        "Käpylä": (60.2200, 24.9470),
        "Laajasalo": (60.1735, 25.0480),
        "Lasipalatsi": (60.1702, 24.9372),
        "Lauttasaari": (60.1597, 24.8790),
        "Lentoasema": (60.3155, 24.9690),
        "Leppävaara": (60.2193, 24.8135),
        "Länsisatama": (60.1510, 24.9165),
        "Malmi": (60.2510, 25.0108),
        "Malminkartano": (60.2489, 24.8610),
        "Martinlaakso": (60.2780, 24.8520),
        "Matinkylä": (60.1599, 24.7390),
        "Maunula": (60.2290, 24.9300),
        "Meilahti": (60.1895, 24.9050),
        "Mellunmäki": (60.2386, 25.1107),
        "Munkkiniemi": (60.1980, 24.8750),
        "Munkkivuori": (60.2062, 24.8760),
        "Myllypuro": (60.2245, 25.0760),
        "Myyrmäki": (60.2612, 24.8545),
        "Ooppera": (60.1815, 24.9300),
        "Otaniemi": (60.1848, 24.8247),
        "Oulunkylä": (60.2290, 24.9680),
        "Paloheinä": (60.2520, 24.9280),
        "Pasila": (60.1990, 24.9337),
        "Pihlajamäki": (60.2350, 25.0080),
        "Pitäjänmäki": (60.2230, 24.8600),
        "Pohjois-Haaga": (60.2303, 24.8829),
        "Pukinmäki": (60.2425, 24.9930),
        "Rastila": (60.2055, 25.1205),
        "Rautatientori": (60.1711, 24.9431),
        "Roihuvuori": (60.1960, 25.0560),
        "Ruoholahti": (60.1632, 24.9150),
        "Ruskeasuo": (60.2040, 24.9050),
        "Senaatintori": (60.1693, 24.9522),
        "Siilitie": (60.2055, 25.0440),
        "Suomenlinna": (60.1480, 24.9860),
        "Sörnäinen": (60.1875, 24.9607),
        "Tapanila": (60.2637, 25.0290),
        "Tapiola": (60.1752, 24.8030),
        "Tikkurila": (60.2923, 25.0440),
        "Töölö": (60.1815, 24.9200),
        "Vallila": (60.1935, 24.9560),
        "Viikki": (60.2260, 25.0160),
        "Vuosaari": (60.2073, 25.1422),
    }
)
"""Latitude and longitude in degrees of each place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """The properties of a kind of vehicle. Metres, seconds, m/s, m/s²."""

    speeds: tuple[float, float]
    """Between the slowest and the fastest stretch."""
    acceleration: float
    braking: float
    """In ordinary traffic. Below 0.9, so that from 10 m/s it takes 10 s: only emergencies stop faster."""
    spacing: float | None
    """Between stops; None: it stops only at the places of its line."""
    lights: bool
    serving: float
    """How probable it is that a passenger gets on or off, so that it halts at a stop."""
    dwell: float
    """The shortest halt at a stop with doors open; passengers come on top."""
    length: float
    """Of the vehicle, with what is kept clear in front of it."""
    headway: float
    """Between vehicles of one line at rush hour: decides how the fleet is shared out."""


MODES: Final[Mapping[str, Mode]] = MappingProxyType(
    {
        "bus": Mode(
            speeds=(9.0, 14.0),
            acceleration=1.1,
            braking=0.85,
            spacing=520.0,
            lights=True,
            serving=0.85,
            dwell=5.0,
            length=20.0,
            headway=300.0,
        ),
        "tram": Mode(
            speeds=(7.5, 12.5),
            acceleration=1.0,
            braking=0.8,
            spacing=480.0,
            lights=True,
            serving=0.97,
            dwell=8.0,
            length=40.0,
            headway=330.0,
        ),
        "train": Mode(
            speeds=(18.0, 30.0),
            acceleration=0.8,
            braking=0.65,
            spacing=None,
            lights=False,
            serving=1.0,
            dwell=20.0,
            length=150.0,
            headway=420.0,
        ),
        "metro": Mode(
            speeds=(15.0, 21.0),
            acceleration=0.9,
            braking=0.8,
            spacing=None,
            lights=False,
            serving=1.0,
            dwell=18.0,
            length=120.0,
            headway=260.0,
        ),
        "ferry": Mode(
            speeds=(4.5, 5.5),
            acceleration=0.1,
            braking=0.1,
            spacing=None,
            lights=False,
            serving=1.0,
            dwell=60.0,
            length=60.0,
            headway=900.0,
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Line:
    """A line: the places it runs over, there and back. `tunnel`: the two places between which it is underground."""

    mode: str
    operator: int
    route: str
    designation: str
    places: tuple[str, ...]
    tunnel: tuple[str, str] | None = None


def _line(
    mode: str, operator: int, route: str, designation: str, places: str, tunnel: tuple[str, str] | None = None
) -> Line:
    return Line(mode, operator, route, designation, tuple(places.split(", ")), tunnel)


_METRO = (
    "Tapiola, Otaniemi, Keilaniemi, Koivusaari, Lauttasaari, Ruoholahti, Kamppi, Rautatientori, Hakaniemi, Sörnäinen, "
    "Kalasatama, Kulosaari, Herttoniemi, Siilitie, Itäkeskus"
)
_METRO_TUNNEL = ("Ruoholahti", "Sörnäinen")
_RAIL_WEST = "Rautatientori, Pasila, Ilmala, Huopalahti"
_RAIL_NORTH = "Rautatientori, Pasila, Käpylä, Oulunkylä, Pukinmäki, Malmi, Tapanila, Tikkurila"

LINES: Final[tuple[Line, ...]] = (
    _line("tram", 40, "1001", "1", "Eira, Kauppatori, Senaatintori, Hakaniemi, Kallio, Vallila, Käpylä"),
    _line("tram", 40, "1002", "2", "Kauppatori, Rautatientori, Kamppi, Töölö, Ooppera, Pasila"),
    _line("tram", 40, "1003", "3", "Eira, Hietalahti, Rautatientori, Hakaniemi, Kallio, Ooppera, Meilahti"),
    _line("tram", 40, "1004", "4", "Katajanokka, Senaatintori, Lasipalatsi, Ooppera, Meilahti, Munkkiniemi"),
    _line("tram", 40, "1006", "6", "Hietalahti, Lasipalatsi, Rautatientori, Hakaniemi, Sörnäinen, Arabia"),
    _line("tram", 40, "1007", "7", "Länsisatama, Kamppi, Rautatientori, Hakaniemi, Sörnäinen, Vallila, Pasila"),
    _line("tram", 40, "1008", "8", "Jätkäsaari, Ruoholahti, Töölö, Ooppera, Kallio, Sörnäinen, Vallila, Arabia"),
    _line("tram", 40, "1009", "9", "Länsisatama, Kamppi, Rautatientori, Kallio, Vallila, Pasila, Ilmala"),
    _line("tram", 40, "1010", "10", "Kauppatori, Lasipalatsi, Ooppera, Meilahti, Ruskeasuo"),
    _line("tram", 40, "1013", "13", "Kalasatama, Sörnäinen, Vallila, Kumpula, Pasila"),
    _line(
        "tram",
        40,
        "2015",
        "15",
        "Keilaniemi, Otaniemi, Leppävaara, Pitäjänmäki, Huopalahti, Maunula, Oulunkylä, Viikki, Myllypuro, Itäkeskus",
    ),
    _line("bus", 18, "1020", "20", "Munkkivuori, Munkkiniemi, Lauttasaari, Ruoholahti, Kamppi, Eira"),
    _line("bus", 18, "1023", "23", "Rautatientori, Hakaniemi, Kallio, Pasila, Ilmala, Ruskeasuo"),
    _line("bus", 18, "1030", "30", "Eira, Hietalahti, Kamppi, Töölö, Meilahti, Munkkiniemi, Munkkivuori"),
    _line("bus", 12, "1037", "37", "Kamppi, Ooppera, Ruskeasuo, Etelä-Haaga, Pohjois-Haaga, Konala"),
    _line("bus", 12, "1039", "39", "Kamppi, Töölö, Meilahti, Ruskeasuo, Etelä-Haaga, Pitäjänmäki, Konala"),
    _line("bus", 12, "1040", "40", "Rautatientori, Ooppera, Ruskeasuo, Etelä-Haaga, Kannelmäki, Malminkartano"),
    _line("bus", 18, "1055", "55", "Rautatientori, Hakaniemi, Sörnäinen, Vallila, Kumpula, Oulunkylä"),
    _line("bus", 18, "1057", "57", "Munkkiniemi, Meilahti, Ruskeasuo, Pasila, Käpylä, Oulunkylä, Viikki, Kontula"),
    _line("bus", 22, "1059", "59", "Malmi, Pihlajamäki, Oulunkylä, Käpylä, Pasila, Vallila, Sörnäinen"),
    _line("bus", 18, "1061", "61", "Rautatientori, Hakaniemi, Vallila, Käpylä, Oulunkylä, Maunula, Paloheinä"),
    _line("bus", 22, "1066", "66", "Rautatientori, Hakaniemi, Käpylä, Maunula, Paloheinä"),
    _line("bus", 55, "1069", "69", "Kamppi, Hakaniemi, Vallila, Kumpula, Oulunkylä, Pukinmäki, Malmi, Jakomäki"),
    _line("bus", 22, "1071", "71", "Rautatientori, Hakaniemi, Sörnäinen, Kumpula, Viikki, Pihlajamäki, Malmi"),
    _line("bus", 55, "1073", "73", "Hakaniemi, Sörnäinen, Kumpula, Pukinmäki, Malmi, Tapanila, Tikkurila"),
    _line("bus", 55, "1079", "79", "Herttoniemi, Siilitie, Viikki, Pihlajamäki, Pukinmäki, Malmi"),
    _line("bus", 22, "1082", "82", "Herttoniemi, Siilitie, Roihuvuori, Itäkeskus, Rastila, Vuosaari"),
    _line("bus", 22, "1085", "85", "Kulosaari, Herttoniemi, Laajasalo"),
    _line("bus", 22, "1094", "94", "Itäkeskus, Myllypuro, Kontula, Mellunmäki, Jakomäki"),
    _line("bus", 30, "2111", "111", "Otaniemi, Tapiola, Matinkylä, Espoon keskus"),
    _line("bus", 30, "2113", "113", "Tapiola, Otaniemi, Leppävaara, Pitäjänmäki, Konala"),
    _line("bus", 30, "2200", "200", "Kamppi, Meilahti, Munkkiniemi, Leppävaara, Kauniainen, Espoon keskus"),
    _line("bus", 22, "2510", "510", "Herttoniemi, Kumpula, Käpylä, Pasila, Meilahti, Munkkiniemi, Otaniemi, Tapiola"),
    _line("bus", 18, "2550", "550", "Itäkeskus, Viikki, Oulunkylä, Käpylä, Huopalahti, Leppävaara, Otaniemi"),
    _line("bus", 12, "4400", "400", "Kamppi, Ooppera, Ruskeasuo, Etelä-Haaga, Kannelmäki, Myyrmäki, Martinlaakso"),
    _line("bus", 55, "4415", "415", "Kamppi, Ooppera, Ilmala, Maunula, Paloheinä, Lentoasema"),
    _line("bus", 18, "4520", "520", "Martinlaakso, Myyrmäki, Malminkartano, Konala, Leppävaara, Tapiola, Matinkylä"),
    _line("bus", 12, "4560", "560", "Myyrmäki, Kannelmäki, Paloheinä, Malmi, Jakomäki, Kontula, Rastila"),
    _line("bus", 55, "4615", "615", "Rautatientori, Hakaniemi, Käpylä, Paloheinä, Lentoasema, Tikkurila"),
    _line("train", 90, "3001A", "A", f"{_RAIL_WEST}, Pitäjänmäki, Leppävaara"),
    _line("train", 90, "3001E", "E", f"{_RAIL_WEST}, Leppävaara, Kauniainen, Espoon keskus"),
    _line("train", 90, "3002K", "K", _RAIL_NORTH),
    _line("train", 90, "3002I", "I", f"{_RAIL_NORTH}, Lentoasema", ("Tikkurila", "Lentoasema")),
    _line(
        "train",
        90,
        "3002P",
        "P",
        f"{_RAIL_WEST}, Pohjois-Haaga, Kannelmäki, Malminkartano, Myyrmäki, Martinlaakso, Lentoasema",
        ("Martinlaakso", "Lentoasema"),
    ),
    _line("metro", 50, "31M1", "M1", f"Matinkylä, {_METRO}, Rastila, Vuosaari", _METRO_TUNNEL),
    _line("metro", 50, "31M2", "M2", f"{_METRO}, Myllypuro, Kontula, Mellunmäki", _METRO_TUNNEL),
    _line("ferry", 60, "1019", "19", "Kauppatori, Suomenlinna"),
)
"""The lines of one city; a simulator of a higher rate runs several copies of them."""
