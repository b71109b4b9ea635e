"""The page in a real browser: what it draws, what its controls do, and that it fits a phone."""

import threading

import pytest
from browser import until
from viewing import halves, show, viewing

from mrcfa.video.style import Look

LEFT, RIGHT = (40, 48), (120, 48)
SHOWN = "document.querySelector('canvas')?.dataset.number == {}"


def pixel(tab, place, canvas=0):
    x, y = place
    return tab.value(
        f"[...document.querySelectorAll('canvas')[{canvas}].getContext('2d')"
        f".getImageData({x}, {y}, 1, 1).data].slice(0, 3)"
    )


def near(colour, other):
    return all(abs(one - two) <= 4 for one, two in zip(colour, other, strict=True))


def test_opacity_and_classes_change_the_picture(browser):
    with viewing(look=Look(alpha=0.5)) as view:
        show(view)
        tab = browser.open(view.url)
        tab.until(SHOWN.format(1))
        assert near(pixel(tab, LEFT), (99, 129, 154))  # grey, and half of the sky's colour
        assert near(pixel(tab, RIGHT), (174, 74, 94))
        tab.value("document.querySelector('[name=class-1]').click()")
        assert near(pixel(tab, RIGHT), (128, 128, 128))
        assert near(pixel(tab, LEFT), (99, 129, 154))
        tab.value("alpha.value = 100, alpha.dispatchEvent(new Event('input'))")
        assert near(pixel(tab, LEFT), (70, 130, 180))
        tab.value("document.getElementById('none').click()")
        assert near(pixel(tab, LEFT), (128, 128, 128))
        tab.value("document.getElementById('all').click()")
        assert near(pixel(tab, RIGHT), (220, 20, 60))
        show(view, pair=halves((48, 64), 10))  # the camera changed its size
        tab.until(SHOWN.format(2))
        assert near(pixel(tab, (50, 20)), (220, 20, 60))
        tab.close()
        until(lambda: not view.viewers)


def test_the_page_follows_the_newest_frame_and_says_how_it_fares(browser):
    with viewing() as view:
        view.screens[0].set_state("live")
        tab = browser.open(view.url)
        for number in range(1, 31):
            show(view, dropped=2 * number)
            tab.until(SHOWN.format(number))
        tab.until("document.getElementById('status').textContent == 'live'")
        tab.until("document.getElementById('dropped').textContent == '60'")
        tab.until("document.querySelector('#rates path')?.getAttribute('d').includes('L')")
        view.screens[0].set_state("lost", "front broke off")
        said = tab.until("document.querySelector('.notice:not([hidden])')?.textContent")
        assert said == "front broke off; reconnecting"
        view.screens[0].set_state("live")
        show(view)
        tab.until("document.querySelector('.notice').hidden")
        view.close()
        tab.until("document.getElementById('status').textContent == 'ended'")
        said = tab.value("document.querySelector('.notice').textContent")
        assert said == "the run has ended"
        assert tab.value(
            "document.querySelector('.notice').getBoundingClientRect().top"
            " >= document.querySelector('canvas').getBoundingClientRect().bottom"
        )
        tab.close()


@pytest.mark.thorough
def test_a_page_of_a_run_before_shows_the_next_run(browser):
    with viewing() as view:
        show(view)
        tab = browser.open(view.url)
        tab.until(SHOWN.format(1))
        port = view._listener.socket.getsockname()[1]
    with viewing("other", place=str(port)) as view:
        show(view, pair=halves(brightness=10))
        show(view)
        tab.until(SHOWN.format(2))
        assert tab.value("document.title") == "other · mrcfa"
        tab.close()


def test_one_of_several_inputs_may_be_chosen(browser):
    with viewing("front", "rear") as view:
        show(view, 0)
        tab = browser.open(view.url)
        show(view, 1, halves(brightness=200))
        tab.until("document.querySelectorAll('canvas')[1]?.dataset.number")
        assert near(pixel(tab, LEFT, 1), (135, 165, 190))
        tab.value("document.querySelectorAll('nav button')[2].click()")
        shown = "[...document.querySelectorAll('#screens figure')].map(one => !one.hidden)"
        assert tab.value(shown) == [False, True]
        (viewer,) = view.viewers
        for _ in range(5):
            show(view, 0)
            show(view, 1)
            number = view.screens[1].shot.number
            tab.until(f"document.querySelectorAll('canvas')[1].dataset.number == {number}")
        assert viewer.demands[0].last <= 3  # what was asked for before, and no more
        tab.value("document.querySelectorAll('nav button')[0].click()")
        tab.until("document.querySelector('canvas').dataset.number == 6")
        tab.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_the_window(browser, width):
    names = ("a camera with a rather long name", "rtsp-camera.example.org-live-stream-1", "c")
    with viewing(*names) as view:
        for number in range(3):
            show(view, number, dropped=1_234_567)
        view.screens[1].set_state("lost", "x" * 200)
        tab = browser.open(view.url, width)
        tab.until("!!document.querySelector('.notice.lost:not([hidden])')")
        tab.until("document.getElementById('dropped').textContent.length > 1")
        assert tab.value("document.documentElement.scrollWidth") <= width
        wide = tab.value(
            "[...document.querySelectorAll('body *')].filter(one => one.getBoundingClientRect()"
            ".right > innerWidth + 0.5 || one.scrollWidth > one.clientWidth + 1 && one.clientWidth"
            " && getComputedStyle(one).display !== 'inline').map(one => one.outerHTML)"
        )
        assert wide == []
        tab.close()


def test_it_follows_the_dark_mode_of_the_system(browser):
    with viewing() as view:
        inks = []
        for dark in (False, True):
            tab = browser.open(view.url, dark=dark)
            tab.until("!!document.getElementById('about')")
            inks.append(tab.value("getComputedStyle(document.body).color"))
            tab.close()
    assert inks == ["rgb(27, 31, 39)", "rgb(231, 234, 240)"]


def test_a_hidden_page_asks_for_nothing_and_a_shown_one_goes_on(browser):
    with viewing() as view:
        show(view)
        tab = browser.open(view.url)
        tab.until(SHOWN.format(1))
        tab.value("Object.defineProperty(document, 'hidden', {value: true, configurable: true}), 0")
        (viewer,) = view.viewers
        while tab.value("screens[0].credit") < 2:  # what it asked for before it was hidden
            show(view)
        before = viewer.demands[0].last
        for _ in range(10):
            show(view)
        assert viewer.demands[0].last == before
        tab.value("delete document.hidden, document.dispatchEvent(new Event('visibilitychange'))")
        tab.until(SHOWN.format(view.screens[0].shot.number))
        assert viewer.demands[0].skipped >= 9
        tab.close()


def test_a_wrong_token_shows_no_page(browser):
    with viewing(place="0.0.0.0:0") as view:
        port = view._listener.socket.getsockname()[1]
        tab = browser.open(f"http://127.0.0.1:{port}/?token=wrong")
        assert tab.until("document.body?.textContent").startswith("mrcfa: wrong token")
        tab.close()
        show(view)
        tab = browser.open(f"http://127.0.0.1:{port}/?token={view._listener.token}")
        tab.until(SHOWN.format(1))
        tab.close()


def test_another_site_cannot_open_the_stream(browser):
    with viewing() as view, viewing() as other:
        address = view.url.replace("http", "ws") + "stream"
        tab = browser.open(other.url)
        tab.until("!!document.getElementById('about')")
        tab("Page.setBypassCSP", enabled=True)
        tab("Page.reload")
        tab.until("!!document.getElementById('about')")
        said = tab.value(
            f"new Promise(done => {{ const line = new WebSocket('{address}');"
            "line.onopen = () => done('open'); line.onerror = () => done('refused'); })"
        )
        assert said == "refused"
        assert not view.viewers
        tab.close()


@pytest.mark.thorough
def test_tabs_that_close_free_their_viewers(browser):
    with viewing() as view:
        show(view)
        threads = threading.active_count()
        for _ in range(5):
            tabs = [browser.open(view.url) for _ in range(4)]
            until(lambda: len(view.viewers) == 4)
            for tab in tabs:
                tab.close()
            until(lambda: not view.viewers)
        assert threading.active_count() <= threads + 1  # the encoder's
