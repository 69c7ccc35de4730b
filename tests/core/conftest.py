import sys
from pathlib import Path

# The tests share arbiter_driver.
sys.path.insert(0, str(Path(__file__).parent))
