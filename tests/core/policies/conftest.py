import sys
from pathlib import Path

# The tests share the builders of policy_views.
sys.path.insert(0, str(Path(__file__).parent))
